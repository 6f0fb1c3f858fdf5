"""Batches for fine-tuning: each example in the published form, once an epoch, none lost to a last batch."""

import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc_jax.data.tasks import Examples
from posenc_jax.data.tokenizer import CLS, PAD, SEP, Specials
from posenc_jax.evaluation.glue.batches import (
    choose_lengths,
    encode,
    evaluation_batches,
    make_buckets,
    steps_per_epoch,
    training_batches,
    truncate_pair,
)


class Words:
    """A tokenizer that gives a word of n letters the id 10 + n."""

    pad, unk, cls, sep, mask = Specials()

    def encode_batch(self, texts):
        return [[10 + len(word) for word in text.split()] for text in texts]


def examples(lengths, pairs=False):
    texts = [" ".join("x" * (1 + i % 7) for i in range(length)) for length in lengths]
    return Examples(texts, texts[::-1] if pairs else None, np.arange(len(texts), dtype=np.int32))


def test_one_text_and_a_pair_have_the_published_form():
    single = Examples(["a bb"], None, np.zeros(1, np.int32))
    pair = Examples(["a bb"], ["ccc"], np.zeros(1, np.int32))
    assert encode(single, Words(), 16)[0] == [[CLS, 11, 12, SEP]]
    assert encode(pair, Words(), 16)[0] == [[CLS, 11, 12, SEP, SEP, 13, SEP]]


def test_the_number_of_separators_can_be_set_apart_from_the_types():
    pair = Examples(["a bb"], ["ccc"], np.zeros(1, np.int32))
    assert encode(pair, Words(), 16, separators=1) == ([[CLS, 11, 12, SEP, 13, SEP]], [4])
    assert encode(pair, Words(), 16, types=True, separators=2) == ([[CLS, 11, 12, SEP, SEP, 13, SEP]], [5])


def test_a_test_split_has_no_labels_and_keeps_its_places():
    unlabelled = Examples(["a", "a bb ccc dddd"], None, None)
    places = [index_B for index_B, _ in evaluation_batches(make_buckets(unlabelled, Words(), 32), 4)]
    assert sorted(np.concatenate(places)) == [0, 1]


def test_what_is_too_long_is_cut_at_its_end_and_keeps_its_separators():
    single = Examples(["a bb ccc dddd"], None, np.zeros(1, np.int32))
    pair = Examples(["a bb ccc dddd"], ["a bb"], np.zeros(1, np.int32))
    assert encode(single, Words(), 5)[0] == [[CLS, 11, 12, 13, SEP]]
    assert encode(pair, Words(), 8)[0] == [[CLS, 11, 12, SEP, SEP, 11, 12, SEP]]


def test_with_token_types_a_pair_has_berts_form_and_the_types_tell_its_texts_apart():
    pair = Examples(["a bb", "a"], ["ccc", "bb bb"], np.zeros(2, np.int32))
    assert encode(pair, Words(), 16, types=True) == ([[CLS, 11, 12, SEP, 13, SEP], [CLS, 11, SEP, 12, 12, SEP]], [4, 3])
    assert encode(pair, Words(), 5, types=True)[0] == [[CLS, 11, SEP, 13, SEP], [CLS, 11, SEP, 12, SEP]]
    ((_, batch),) = evaluation_batches(make_buckets(pair, Words(), 8, types=True), 2)
    assert batch["types"].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]]
    assert batch["segments"].tolist() == [[1] * 6 + [0] * 2] * 2


def test_single_texts_are_all_of_the_first_type_and_without_token_types_there_are_none():
    single = Examples(["a bb"], None, np.zeros(1, np.int32))
    ((_, batch),) = evaluation_batches(make_buckets(single, Words(), 8, types=True), 1)
    assert not batch["types"].any()
    ((_, batch),) = evaluation_batches(make_buckets(single, Words(), 8), 1)
    assert "types" not in batch


def test_padding_is_the_tokenizers_and_a_word_with_id_0_is_a_word():
    class Roberta(Words):
        pad, unk, cls, sep, mask = Specials(pad=1, unk=3, cls=0, sep=2, mask=4)

    single = Examples(["a bb"], None, np.zeros(1, np.int32))
    ((_, batch),) = evaluation_batches(make_buckets(single, Roberta(), 8), 1)
    assert batch["tokens"].tolist() == [[0, 11, 12, 2, 1, 1, 1, 1]]
    assert batch["segments"].tolist() == [[1, 1, 1, 1, 0, 0, 0, 0]]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 60))
def test_a_pair_loses_words_from_the_longer_one_at_a_time(length_a, length_b, room):
    a, b = list(range(length_a)), list(range(length_b))
    kept_a, kept_b = a, b
    while len(kept_a) + len(kept_b) > room:
        kept_a, kept_b = (kept_a[:-1], kept_b) if len(kept_a) > len(kept_b) else (kept_a, kept_b[:-1])
    assert truncate_pair(a, b, room) == (kept_a, kept_b)


@given(st.lists(st.integers(1, 128), min_size=1), st.sampled_from([8, 16, 48, 128]))
def test_shapes_are_few_ascending_and_hold_every_example(lengths, limit):
    lengths_N = np.minimum(lengths, limit)
    shapes = choose_lengths(lengths_N, limit)
    assert shapes == sorted(set(shapes)) and shapes[-1] >= lengths_N.max() and shapes[-1] <= limit
    assert len(shapes) <= 4


@pytest.mark.parametrize("pairs", [False, True])
def test_an_epoch_holds_each_example_once(pairs):
    split = examples([3, 5, 9, 14, 20, 27, 30, 40, 50, 61] * 5 + [2], pairs)
    buckets = make_buckets(split, Words(), 128)
    assert len(buckets) > 1
    batches = list(training_batches(buckets, 4, 2, seed=0))
    assert len(batches) == 2 * steps_per_epoch(buckets, 4)
    epoch = batches[: len(batches) // 2]
    seen = collections.Counter(
        int(label) for batch in epoch for label, weight in zip(batch["labels"], batch["weight"], strict=True) if weight
    )
    assert seen == collections.Counter(range(len(split)))
    rows, _ = encode(split, Words(), 128)
    for batch in epoch:
        assert all(len(array) == 4 for array in batch.values())
        for tokens, segments, label in zip(batch["tokens"], batch["segments"], batch["labels"], strict=True):
            assert [token for token in tokens if token != PAD] == rows[label]
            assert (segments == (tokens != PAD)).all()


def test_the_order_is_a_function_of_seed_and_epoch():
    buckets = make_buckets(examples(list(range(1, 60))), Words(), 64)

    def order(seed):
        return [batch["labels"].tolist() for batch in training_batches(buckets, 8, 2, seed)]

    assert order(3) == order(3) != order(4)
    first, second = order(3)[: len(order(3)) // 2], order(3)[len(order(3)) // 2 :]
    assert first != second


def test_evaluation_looks_at_each_example_once_and_knows_its_place():
    split = examples([3, 70, 9, 14, 20, 27, 100, 40, 50, 61, 2])
    buckets = make_buckets(split, Words(), 128)
    places = []
    for index_B, batch in evaluation_batches(buckets, 4):
        assert batch["labels"][: len(index_B)].tolist() == index_B.tolist()
        assert batch["weight"].sum() == len(index_B)
        places += index_B.tolist()
    assert sorted(places) == list(range(len(split)))
