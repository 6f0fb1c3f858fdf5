import json

import pytest

from posenc_jax.__main__ import main
from posenc_jax.evaluation.preflight import process
from tests.evaluation.preflight.questions import formula

LINE = ["preflight", "--config", "configs/tupe.py:tupe_r,tiny", "--topology", "v5e:2x4"]


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """A compiler that is a formula; returns what it was asked."""
    import contextlib

    asked = []
    monkeypatch.setattr(process, "compiler", lambda: contextlib.nullcontext(formula(2, 1, asked=asked)))
    return asked


def test_json_on_the_screen_is_json_alone(capsys, compiled):
    assert main([*LINE, "--json", "-"]) == 0
    out = capsys.readouterr()
    result = json.loads(out.out)
    assert result["fits"] and result["vocab_size"] == 32_768 and result["length"] == 512
    assert compiled[0].config.train.batch_size == 32


def test_a_batch_that_does_not_fit_ends_with_1_and_the_verdict_first(capsys, tmp_path):
    path = tmp_path / "answer.json"
    assert main([*LINE, "--config.train.batch_size=256", "--json", str(path), "--vocab-size", "1000"]) == 1
    assert capsys.readouterr().out.startswith("does not fit: needs 34.00 GiB of a device that has 16.00 GiB")
    assert json.loads(path.read_text())["vocab_size"] == 1000


def test_the_largest_batch_is_looked_for_when_asked(capsys):
    assert main([*LINE, "--find-batch"]) == 0
    assert "largest batch that fits: 112 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, said",
    [
        ([*LINE[:3]], "name a --config and a --topology"),
        ([*LINE, "--all"], "--all takes no --config"),
        ([*LINE, "--slices", "0"], "--slices=0"),
        ([*LINE, "--vocab-size", "0"], "--vocab-size=0"),
        ([*LINE, "--topologies", "v4:2x2x1"], "--topologies belongs to --all"),
        ([*LINE[:3], "--topology", "v7:2x4"], "no TPU topology is called 'v7:2x4'"),
        ([*LINE, "--json", "/nowhere/a.json"], "there is no folder /nowhere"),
        ([*LINE, "--json", "/"], "--json=/ is a folder; name a file in it"),
        ([*LINE, "--find-bath"], "preflight does not know '--find-bath'"),
        ([*LINE, "--config.model.widht=3"], "width"),
        ([*LINE, "--data", "/nowhere"], "there is no folder /nowhere"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(words, said, capsys):
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    assert code == (1 if "--data" in words else 2)
    assert said in capsys.readouterr().err


def test_the_matrix_has_a_cell_for_each_config_and_topology(capsys, monkeypatch):
    from posenc_jax.evaluation.preflight import matrix

    monkeypatch.setattr(matrix, "compiler", process.compiler)
    monkeypatch.setattr(matrix, "shipped_variants", lambda: ["configs/bert.py:bert_a", "configs/bert.py:rope"])
    assert main(["preflight", "--all", "--topologies", "v5e:2x4,v5e:4x8", "--size", "base"]) == 0
    out = capsys.readouterr()
    assert "| bert.py:bert_a,base | no: needs 34.0 | 10.0 |" in out.out
    assert "2 of 2: bert.py:rope,base on v5e:4x8: 10.0" in out.err
