"""Benchmarks: what is compared, and the arithmetic of the ratios. No speed is tested."""

import importlib.util

import pytest

from posenc_jax.commands import bench
from posenc_jax.errors import UserError
from posenc_jax.evaluation.bench.prepare import group_texts
from posenc_jax.evaluation.bench.ratio import OURS, figure, ratio_table


def test_the_ratio_is_the_median_of_the_rounds_not_of_the_speeds():
    table = ratio_table("What.", "tokens/s", {OURS: [100.0, 10.0, 30.0], "peer": [50.0, 40.0, 10.0]})
    assert table.columns == ("side", "tokens/s", "posenc_jax / side")
    assert table.rows == [(OURS, "30", ""), ("peer", "40", "2.00 x (0.25 to 3.00)")]
    assert "3 rounds" in table.caption and "median (least to most)" in table.caption


@pytest.mark.parametrize(("number", "text"), [(12345.6, "12,346"), (99.96, "100"), (7.125, "7.12"), (0.2, "0.2")])
def test_a_figure_has_three_digits_and_all_before_the_point(number, text):
    assert figure(number) == text


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (["steps", "--against", "transformers"], "torch"),
        (["steps", "--against", "transformers"], "transformers"),
        (["prepare"], "transformers"),
        (["finetune"], "torch"),
        (["inference", "--only", "encoder"], "transformers"),
    ],
)
def test_a_missing_peer_is_told_in_one_sentence(words, package, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name) or find("json")
    )
    with pytest.raises(UserError, match=f"but {package} cannot be imported here; pip install {package}$"):
        bench.main(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["steps", "--rounds", "0"],
        ["steps", "--against", "fairseq"],
        ["prepare", "--length", "x"],
        ["compile", "--work", "gpt"],
        ["inference", "--only", "decoder"],
    ],
)
def test_what_cannot_be_meant_is_wrong_use(words, capsys):
    with pytest.raises(SystemExit) as caught:
        bench.main(words)
    assert caught.value.code == 2


def test_groups_are_whole_and_in_order():
    grouped = group_texts({"input_ids": [[1, 2, 3], [4, 5], [6, 7]], "mask": [[0] * 3, [1] * 2, [0] * 2]}, 3)
    assert grouped == {"input_ids": [[1, 2, 3], [4, 5, 6]], "mask": [[0, 0, 0], [1, 1, 0]]}
