"""The commands that a page prints make the same run again."""

import dataclasses
import shlex

import pytest

from posenc_jax.commands.pretrain import read_overrides
from posenc_jax.config import Config, config_diff
from posenc_jax.config_files import load_config
from posenc_jax.evaluation.page.provenance import commands, differences, recipe
from posenc_jax.evaluation.runs import Run
from posenc_jax.interop.origin import Origin
from posenc_jax.objectives.pretraining import resolve
from tests.tiny_rows import LENGTH, write_rows


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows of mine"))


def run_of(config, info=None, **more):
    facts = {} if info is None else {"train": {"rows": info.train.rows}, "settings": more.pop("settings", {})}
    return Run("run", info.path.parent / "work dir" if info else None, config, [], facts, [], **more)


@pytest.mark.parametrize(
    ("spec", "overrides"),
    [
        ("configs/tupe.py:tupe_r,tiny,length=64,seed=3", {"train.steps": 200}),
        ("configs/bert.py:rope,small", {"train.steps": "3 epochs", "train.batch_size": 16, "optimizer.warmup": "7 %"}),
        ("configs/convbert.py:convbert,medium_small", {"model.convolution.width": 5}),
        ("configs/electra.py:electra,tiny", {"rtd.generator_scheme": "none", "train.batch_size": 32}),
        ("configs/symmetric.py:pairwise,tiny", {"optimizer.clip_norm": None, "train.batch_size": 8}),
        ("configs/mth.py:mth,tiny", {"train.eval_every": "1e4 tokens", "train.batch_size": 8}),
    ],
)
def test_the_pretrain_line_gives_the_same_settings(spec, overrides, rows):
    overrides = {
        "train.batch_size": 8,
        "train.accumulate": 1,
        "optimizer.warmup": 1,
        "data.path": str(rows.path),
    } | overrides
    config = resolve(load_config(spec, overrides), rows)
    *_, line = commands(run_of(config, rows))
    program, module, package, command, *words = split(line)
    assert (program, module, package, command) == ("python", "-m", "posenc_jax", "pretrain")
    named = {words[n].removeprefix("--"): words[n + 1] for n in range(len(words)) if words[n] in NAMED}
    rest = [word for word in words if word.startswith("--config.")]
    again = load_config(named["config"], {**read_overrides(rest), "data.path": named["data"]})
    assert config_diff(resolve(again, rows), config) == []
    assert named["workdir"].endswith("work dir")


NAMED = ("--config", "--data", "--workdir")


def split(line):
    """As a shell does, which joins lines first."""
    return shlex.split(line.replace("\\\n", ""))


def test_the_nearest_config_is_named_with_little_to_override(rows):
    spec = "configs/tupe.py:tupe_r,tiny,length=64,seed=3"
    config = resolve(load_config(spec, {"data.path": str(rows.path), "train.steps": 200}), rows)
    assert recipe(config) == (spec, {"train.steps": "200"})


def test_an_imported_model_is_imported_again(tmp_path):
    run = run_of(Config(), origin=Origin("bert", "hub/my model", "0", 64))
    (line,) = commands(dataclasses.replace(run, workdir=tmp_path))
    assert split(line)[3:] == ["import", "hf", "hub/my model", "--workdir", str(tmp_path)]


def test_the_prepare_line_says_what_the_rows_were_made_with(rows):
    settings = {
        "source": "docstrings:numpy text:my texts.txt", "length": 64, "packing": "documents", "vocab_size": 99,
        "tokenizer": "bpe", "lowercase": False, "holdout": 0.1, "shard_characters": None,
    }  # fmt: skip
    config = resolve(load_config("configs/bert.py:bert_a,tiny,length=16", {"data.path": str(rows.path)}), rows)
    line, _ = commands(run_of(config, rows, settings=settings))
    assert split(line)[4:] == [
        "--source", "docstrings:numpy", "--source", "text:my texts.txt", "--out", str(rows.path), "--length", "64",
        "--packing", "documents", "--vocab-size", "99", "--tokenizer-kind", "bpe", "--no-lowercase", "--holdout", "0.1",
    ]  # fmt: skip
    assert rows.length == LENGTH


def test_differences_are_those_that_change_results():
    one, other = (dataclasses.replace(run_of(Config()), name=name) for name in "ab")
    assert differences([one, other]) is None
    train = dataclasses.replace(Config().train, seed=4, log_every=7)
    changed = dataclasses.replace(other, config=dataclasses.replace(Config(), train=train))
    table = differences([one, changed])
    assert table.columns == ("setting", "a", "b") and table.rows == [("train.seed", "0", "4")]
    assert differences([changed]).rows == [("train.seed", "0", "4")] and differences([one]) is None
