"""Benchmarks: what is compared, and the arithmetic of the ratios. No speed is tested."""

import importlib.util

import numpy as np
import pytest

from posenc_jax.commands import bench
from posenc_jax.errors import UserError
from posenc_jax.evaluation.bench.mlm import IGNORED, Workload, _answer, _processes, masked_batches
from posenc_jax.evaluation.bench.prepare import group_texts
from posenc_jax.evaluation.bench.ratio import OURS, ratio_table

SMALL = Workload(size="tiny", batch_size=4, length=40, vocab_size=100)


def test_the_ratio_is_the_median_of_the_rounds_not_of_the_speeds():
    table = ratio_table("What.", "tokens/s", {OURS: [100.0, 10.0, 30.0], "peer": [50.0, 40.0, 10.0]})
    assert table.columns == ("side", "tokens/s", "posenc_jax / side")
    assert table.rows == [(OURS, "30", ""), ("peer", "40", "2.00 x (0.25 to 3.00)")]
    assert "3 rounds" in table.caption and "median (least to most)" in table.caption


@pytest.mark.parametrize(("what", "package"), [("mlm", "torch"), ("mlm", "transformers"), ("prepare", "transformers")])
def test_a_missing_peer_is_told_in_one_sentence(what, package, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name) or find("json")
    )
    with pytest.raises(UserError, match=f"but {package} cannot be imported here; pip install {package}$"):
        bench.main([what, "--against", "transformers"])


@pytest.mark.parametrize(
    "words", [[], ["mlm", "--rounds", "0"], ["mlm", "--against", "fairseq"], ["prepare", "--length", "x"]]
)
def test_what_cannot_be_meant_is_wrong_use(words, capsys):
    with pytest.raises(SystemExit) as caught:
        bench.main(words)
    assert caught.value.code == 2


def test_both_sides_learn_from_the_same_words_with_the_model_that_is_named():
    small = Workload()
    model = small.model
    assert (model.layers, model.width, model.heads, model.feed_forward_width) == (12, 256, 4, 1024)
    assert (model.vocab_size, model.dropout, model.attention_dropout, model.dtype) == (30_522, 0.1, 0.1, "float32")
    assert small.tokens == 4096 and model.positions.scheme == "learned" and not model.scan


def test_the_labels_are_the_words_at_the_masked_places_and_nowhere_else():
    for words, (tokens, labels) in zip(SMALL.words(), masked_batches(SMALL), strict=True):
        assert tokens.shape == labels.shape == (4, 40)
        is_masked = labels != IGNORED
        assert set(is_masked.sum(1)) <= {6}  # 15 % of 40
        np.testing.assert_array_equal(labels[is_masked], words[is_masked])
        np.testing.assert_array_equal(tokens[~is_masked], words[~is_masked])
        assert (tokens != words).sum() > 12


def _failing(workload, batches, option):
    raise MemoryError("no room")


def _working(workload, batches, option):
    return (lambda steps: None), f"{option} {workload.size} {len(batches)}"


def test_a_side_is_a_process_that_answers_and_its_failure_is_told():
    sides = {"good": (_working, "one"), "bad": (_failing, None)}
    with _processes(sides, SMALL, [1, 2]) as connections:
        assert _answer("good", connections["good"]) == "one tiny 2"
        connections["good"].send(3)
        assert 0 <= _answer("good", connections["good"]) < 60
        with pytest.raises(UserError, match="bad failed: MemoryError: no room"):
            _answer("bad", connections["bad"])
        with pytest.raises(UserError, match="the process of bad died"):
            _answer("bad", connections["bad"])


def test_groups_are_whole_and_in_order():
    grouped = group_texts({"input_ids": [[1, 2, 3], [4, 5], [6, 7]], "mask": [[0] * 3, [1] * 2, [0] * 2]}, 3)
    assert grouped == {"input_ids": [[1, 2, 3], [4, 5, 6]], "mask": [[0, 0, 0], [1, 1, 0]]}
