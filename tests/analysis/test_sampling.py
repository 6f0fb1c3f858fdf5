"""Samples of tokens: who may be drawn, how often, and that a seed says all of it."""

import numpy as np
import pytest

from posenc_jax.analysis.sampling import occurrences, sample_pairs
from posenc_jax.analysis.states import TokenStates

SENTENCES = (("the", "dog", "sees", "the", "dog", "."), ("the", "man"), ("a", "dog", "."), ("the", "dog", "ran", "."))


def token_states(sentences=SENTENCES) -> TokenStates:
    """One row a word, between [CLS] and [SEP]; a word's id is the place of its text among all texts, from 10."""
    texts = sorted({word for words in sentences for word in words})
    rows = []
    for sentence, words in enumerate(sentences):
        rows.append((sentence, 0, 1, -1, True, False))
        rows += [
            (sentence, word + 1, 10 + texts.index(text), word, False, text == ".") for word, text in enumerate(words)
        ]
        rows.append((sentence, len(words) + 1, 2, -1, True, False))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    states = np.zeros((2, len(rows), 3), np.float32)
    return TokenStates(states, *columns, words=dict(enumerate(sentences)), layers=("0", "1"))


def many(count=40) -> TokenStates:
    return token_states([tuple("abcdefgh"[: 1 + number % 8]) for number in range(count)])


def test_luos_pairs_hold_one_token_of_each_of_twice_as_many_sentences():
    states = many()
    pairs = sample_pairs(states, 15, seed=3)
    assert pairs.shape == (15, 2) and len(set(states.sentence_N[pairs].ravel())) == 30
    assert not states.special_N[pairs].any()
    assert states.special_N[sample_pairs(states, 15, exclude_special=False, seed=3)].any()


def test_of_few_sentences_there_are_as_many_pairs_as_they_give():
    assert sample_pairs(many(9), 1000, seed=0).shape == (4, 2)


def test_a_token_never_meets_itself_and_all_are_drawn_alike():
    states = token_states()
    allowed = np.flatnonzero(~states.special_N)
    pairs = sample_pairs(states, 30_000, "any_two_tokens", seed=0)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    counts = np.bincount(pairs.ravel(), minlength=len(states))
    assert counts[states.special_N].sum() == 0
    assert abs(counts[allowed] / 60_000 - 1 / len(allowed)).max() < 0.005
    by_pair = np.bincount(pairs[:, 0] * len(states) + pairs[:, 1])
    assert (by_pair > 0).sum() == len(allowed) * (len(allowed) - 1)


def test_every_token_of_a_sentence_may_be_its_one():
    states = many()
    drawn = np.concatenate([sample_pairs(states, 20, seed=seed).ravel() for seed in range(60)])
    assert set(drawn) == set(np.flatnonzero(~states.special_N))


@pytest.mark.parametrize("scheme", ["one_token_per_sentence", "any_two_tokens"])
def test_a_seed_is_a_sample(scheme):
    states = many()
    one, same, other = (sample_pairs(states, 20, scheme, seed=seed) for seed in (1, 1, 2))
    assert (one == same).all() and (one != other).any()


def test_a_text_of_one_sentence_has_no_pair_of_sentences():
    with pytest.raises(ValueError, match="1 sentences make no pair"):
        sample_pairs(token_states(SENTENCES[:1]))
    with pytest.raises(ValueError, match="1 tokens to choose from"):
        sample_pairs(token_states([("dog",)]), scheme="any_two_tokens")


def test_occurrences_are_the_first_in_each_sentence():
    found = occurrences(token_states(), min_sentences=3)
    assert list(found) == ["dog", "the"]  # "." is punctuation
    assert found["the"].tolist() == [1, 9, 18] and found["dog"].tolist() == [2, 14, 19]
    assert list(occurrences(token_states(), 3, exclude_punctuation=False)) == [".", "dog", "the"]
    assert list(occurrences(token_states(), 1)) == ["a", "dog", "man", "ran", "sees", "the"]


def test_tokens_are_named_by_their_id():
    states = token_states()
    by_text, by_id = occurrences(states, 2), occurrences(states, 2, unit="token")
    assert list(by_id) == [str(states.token_N[index[0]]) for index in by_text.values()]
    assert [one.tolist() for one in by_id.values()] == [one.tolist() for one in by_text.values()]


def test_words_and_occurrences_are_drawn_from_the_seed():
    states = many()
    every = occurrences(states, 5)
    drawn = [occurrences(states, 5, n_words=3, max_occurrences=4, seed=seed) for seed in (0, 0, 1)]
    for one in drawn:
        assert len(one) == 3 and all(len(index) == 4 and set(index) < set(every[name]) for name, index in one.items())
    assert str(drawn[0]) == str(drawn[1]) != str(drawn[2])


def test_subwords_are_not_taken_for_words():
    states = token_states()
    with pytest.raises(ValueError, match="several rows, its subwords; take pool_words"):
        occurrences(states.take(np.array([1, 1, 2])))
    with pytest.raises(ValueError, match="texts of these states are not known"):
        occurrences(TokenStates(**{**vars(states), "words": {}}))
