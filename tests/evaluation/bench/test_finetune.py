"""The benchmark of fine-tuning: both sides see the same texts, each with its own padding. No speed is tested."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc_jax.commands import bench
from posenc_jax.data.tokenizer import CLS, SEP
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.bench.finetune import (
    examples,
    our_batches,
    our_finetuning,
    share_of_words,
    task_lengths,
)
from posenc_jax.evaluation.bench.workloads import COLA, Finetuning, padded_batches, typical
from tests.tiny_tokenizers import write_word_piece

LENGTHS = (5, 9, 17, 6, 30, 8, 7, 12, 40, 10, 11)
SMALL = Finetuning(LENGTHS, size="tiny", batch_size=4, limit=32, vocab_size=100)  # one text is cut


def test_the_lengths_built_in_are_those_of_all_sentences_of_cola():
    work = Finetuning()
    assert len(work.lengths) == sum(COLA.values()) == 8551 and np.mean(work.lengths) == pytest.approx(11.327, abs=1e-3)
    assert (work.model.layers, work.model.width, work.model.token_types, work.batch_size) == (12, 768, 2, 32)


@given(st.lists(st.integers(1, 99), min_size=1, max_size=60), st.integers(1, 12))
def test_typical_batches_are_the_middles_of_equal_shares(lengths, count):
    chosen = [lengths[place] for place in typical(lengths, count)]
    assert chosen == [sorted(lengths)[(2 * number + 1) * len(lengths) // (2 * count)] for number in range(count)]


def test_typical_batches_of_an_epoch_that_is_asked_for_whole_are_all_of_it():
    assert sorted(typical([32, 16, 64, 16, 16], 5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("to_limit", [True, False])
def test_the_peer_gets_every_text_once_padded_as_it_pads(to_limit):
    batches = padded_batches(SMALL, to_limit, 3)
    assert examples(batches) == len(LENGTHS)
    rows = [row[row != 0].tolist() for batch in batches for row in batch["tokens"]]
    assert sorted(rows) == sorted([CLS, *text, SEP] for text in SMALL.texts())
    for batch in batches:
        words_B = batch["segments"].sum(1)
        assert batch["tokens"].shape[1] == (32 if to_limit else words_B.max())
        np.testing.assert_array_equal(words_B, (batch["tokens"] != 0).sum(1))


def test_our_side_gets_every_text_once_and_rows_that_fill_up_are_none():
    epoch = our_batches(SMALL, 3)
    assert [batch["tokens"].shape for batch in epoch] == [(4, 16), (4, 16), (4, 32)]
    rows = [row[row != 0].tolist() for batch in epoch for row in batch["tokens"][batch["weight"] > 0]]
    assert sorted(rows) == sorted([CLS, *text, SEP] for text in SMALL.texts())
    assert examples(epoch) == len(LENGTHS)


def test_the_share_of_words_counts_filled_up_rows_as_padding():
    full = {"segments": np.array([[1, 1, 0, 0], [1, 1, 1, 1]]), "weight": np.array([1.0, 1.0])}
    half = {"segments": np.array([[1, 1, 1, 0], [1, 1, 1, 0]]), "weight": np.array([1.0, 0.0])}
    assert share_of_words([full]) == 6 / 8 and share_of_words([full, half]) == 9 / 16
    assert examples([full, half]) == 3


@pytest.mark.parametrize("size", ["tiny", "base"])
def test_the_classifier_of_the_peer_has_as_many_parameters_as_ours(size):
    torch = pytest.importorskip("torch")
    import jax

    from posenc_jax.evaluation.bench.peers import classifier
    from posenc_jax.objectives.supervised import Supervised

    work = Finetuning(LENGTHS, size=size, vocab_size=1000)
    shapes = jax.eval_shape(Supervised(work.model, 2).init, jax.random.key(0))
    with torch.device("meta"):  # shapes alone
        module, _ = classifier(work)
    ours, theirs = (sum(leaf.size for leaf in jax.tree.leaves(shapes)), sum(p.numel() for p in module.parameters()))
    final_norm = 2 * work.model.width if work.model.norm == "pre" else 0
    assert theirs == ours - final_norm


def test_padding_is_masked_on_the_side_of_the_peer():
    torch = pytest.importorskip("torch")
    from posenc_jax.evaluation.bench.peers import classifier

    torch.manual_seed(0)
    module, loss = classifier(SMALL)
    module.eval()  # no dropout
    losses = []
    for to_limit in (True, False):
        (batch,) = padded_batches(Finetuning((5, 9, 12), "tiny", 3, 32, 100), to_limit, 1)
        arrays = (torch.from_numpy(batch[name].astype(np.int64)) for name in ("tokens", "segments", "labels"))
        losses.append(loss(*arrays).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_our_side_goes_round_its_batches():
    work = Finetuning((5, 9, 12), "tiny", 2, 16, 60)
    run, device = our_finetuning(work, our_batches(work, 2))
    run(3)
    assert device.startswith("jax ")


def test_lengths_are_those_of_the_task_in_pieces_of_the_vocabulary_given(tmp_path):
    pytest.importorskip("transformers")
    vocab = write_word_piece(tmp_path / "tokenizer") / "vocab.txt"
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "train.tsv").write_text("a\t1\t\tThe quick fox\na\t0\t*\tgood films over the fox\n", "utf-8")
    lengths, source = task_lengths(tmp_path, "CoLA", 1000, vocab)
    assert lengths == (5, 8) and source == f"CoLA's train split in pieces of {vocab}"  # film ##s makes two


def test_missing_texts_and_vocabularies_are_told(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(UserError, match="has no folder CoLA"):
        task_lengths(tmp_path, "CoLA", 1000, None)
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "train.tsv").write_text("a\t1\t\tThe quick fox\n", "utf-8")
    with pytest.raises(UserError, match=r"there is no vocabulary file .*x\.txt"):
        task_lengths(tmp_path, "CoLA", 1000, tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["finetune", "--vocab", "v.txt"], "name the GLUE folder, too"),
        (["finetune", "--length", "4"], "--length=4 is too small; the least is 8"),
        (["steps", "--vocab-size", "5"], "--vocab-size=5 is too small; the least is 8"),
    ],
)
def test_what_cannot_be_meant_is_refused(words, match):
    with pytest.raises(UsageError, match=match):
        bench.main(words)
