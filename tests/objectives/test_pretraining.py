"""A run as a user starts it: killed, stopped, refused, gone on. Each run is a process of its own."""

import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from posenc_jax.errors import UserError
from posenc_jax.objectives import pretraining
from posenc_jax.objectives.pretraining import pretrain
from posenc_jax.training.trackers import JsonLines
from posenc_jax.training.workdir import read_config
from tests.forks import ROOT, Forks
from tests.tiny_rows import write_rows

SETTINGS = {
    "model.width": 16, "model.feed_forward_width": 32, "model.layers": 1, "model.dropout": 0.1, "train.steps": 60,
    "train.batch_size": 8, "train.log_every": 5, "train.eval_every": 20, "train.eval_rows": 16,
    "train.checkpoint_every": 7, "train.keep_checkpoints": 2, "optimizer.warmup": 5,
}  # fmt: skip


def words(rows, workdir, **overrides):
    settings = {**SETTINGS, **{key.replace("__", "."): value for key, value in overrides.items()}}
    return [
        "pretrain", "--config", "configs/tupe.py:tupe_r,tiny,length=16", "--data", str(rows), "--workdir", str(workdir),
        *(f"--config.{key}={value}" for key, value in settings.items()),
    ]  # fmt: skip


def command(*args, **overrides):
    return [sys.executable, "-m", "posenc_jax", *words(*args, **overrides)]


def environment(cache):
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    return {
        **os.environ,
        **flags,
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


class Runner:
    """Starts runs on one folder of rows; compiled code is kept between them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, folder / "rows"
        write_rows(self.rows, train=90)
        self.forks = Forks(environment(folder / "cache"), folder / "log")

    def start(self, workdir, rows=None, **overrides):
        return subprocess.Popen(
            command(rows or self.rows, workdir, **overrides), env=environment(self.folder / "cache"), cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, workdir, rows=None, **overrides):
        return self.forks.run(words(rows or self.rows, workdir, **overrides))


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    runner = Runner(tmp_path_factory.mktemp("runs"))
    yield runner
    runner.forks.close()


@pytest.fixture(scope="module")
def whole(runner):
    """A run that nothing interrupted."""
    workdir = runner.folder / "whole"
    code, output = runner.run(workdir)
    assert code == 0, output
    return workdir


def events(workdir, kind=None):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [event for event in lines if kind in (None, event["kind"])]


def final_parameters(workdir):
    import jax
    import orbax.checkpoint as ocp

    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        return jax.tree.map(np.asarray, reader.restore(workdir.absolute() / "checkpoints" / "60" / "params"))


def assert_same_end(workdir, whole):
    import jax

    jax.tree.map(np.testing.assert_array_equal, final_parameters(workdir), final_parameters(whole))
    for kind in ("train", "validation"):
        a, b = ([(e["step"], e["loss"]) for e in events(folder, kind)] for folder in (workdir, whole))
        assert [step for step, _ in a] == [step for step, _ in b]
    assert events(workdir, "validation")[-1]["loss"] == events(whole, "validation")[-1]["loss"]


def test_a_run_leaves_what_the_readme_says_and_learns(whole):
    files = {"config.json", "tokenizer.model", "rows.json", "metrics.jsonl", "tensorboard", "checkpoints"}
    assert files <= {path.name for path in whole.iterdir()}
    assert [event["step"] for event in events(whole, "validation")] == [20, 40, 60]
    losses = [event["loss"] for event in events(whole, "train")]
    assert len(losses) == 12 and losses[-1] < losses[0]
    summary = events(whole)[-1]
    assert summary["kind"] == "summary" and summary["validation_loss"] == events(whole, "validation")[-1]["loss"]
    assert any((whole / "tensorboard").iterdir())


def test_a_finished_run_says_so_and_changes_nothing(runner, whole):
    before = (whole / "metrics.jsonl").read_bytes()
    code, output = runner.run(whole)
    assert code == 0 and "finished at step 60" in output
    assert (whole / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_asks_to_be_run_again(runner, whole, number):
    workdir = runner.folder / f"signal{int(number)}"
    process = runner.start(workdir)
    while process.poll() is None and not ((workdir / "metrics.jsonl").exists() and events(workdir, "train")):
        time.sleep(0.05)
    process.send_signal(number)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 75, output
    assert "run the same line again to go on" in output and "Traceback" not in output
    code, output = runner.run(workdir)
    assert code == 0 and "goes on from step" in output
    assert_same_end(workdir, whole)


def refused(result, code, *words):
    assert result[0] == code, result[1]
    assert "Traceback" not in result[1], result[1]
    for word in words:
        assert word in result[1]


def test_a_workdir_of_another_config_is_refused_with_the_difference(runner, whole):
    before = (whole / "config.json").read_bytes()
    result = runner.run(whole, model__width=32, optimizer__learning_rate=0.5)
    refused(result, 2, "model.width: 16 -> 32", "optimizer.learning_rate: 0.003 -> 0.5")
    assert (whole / "config.json").read_bytes() == before


def test_rows_of_another_tokenizer_are_refused(runner, whole):
    other = runner.folder / "other_rows"
    write_rows(other, train=90)
    info = json.loads((other / "rows.json").read_text())
    model = other / "tokenizer.model"
    from posenc_jax.data.tokenizer import Tokenizer, train_tokenizer

    train_tokenizer(iter(["completely other words stand here"] * 50 + ["quick brown foxes jump"] * 9), model, 40, "bpe")
    refused(runner.run(runner.folder / "swapped", rows=other), 1, "is not the tokenizer these rows were made with")
    info["tokenizer_sha256"], info["vocab_size"] = Tokenizer.load(model).sha256, 64
    (other / "rows.json").write_text(json.dumps(info))
    refused(runner.run(whole, rows=other), 1, "does not hold the rows", "tokenizer_sha256 is")


def test_a_loss_that_explodes_stops_the_run_and_keeps_what_was_saved(runner):
    workdir = runner.folder / "nan"
    result = runner.run(workdir, optimizer__learning_rate=1e30, optimizer__clip_norm="none", train__checkpoint_every=1)
    refused(result, 1, "the loss is not finite at step", "lower optimizer.learning_rate")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (dict(data__length=32), "data.length=32, but"),
        (dict(model__vocab_size=20), "model.vocab_size=20 is below the tokenizer's 64"),
        (dict(model__positions__max_length=8), "rows of 16 slots are longer than model.positions.max_length=8"),
        (dict(model__positions__scheme="tupe+t6"), "names 't6'"),
        (dict(mesh__data=3), "mesh.data=3 x mesh.fsdp=1 x mesh.tensor=1 does not make the 1 devices"),
        (dict(optimizer__warmup=61), "more than train.steps=60"),
    ],
)
def test_settings_that_clash_with_the_rows_are_refused_before_anything_is_written(runner, overrides, words):
    workdir = runner.folder / "clash"
    refused(runner.run(workdir, **overrides), 2, words)
    assert not workdir.exists()


def test_rows_or_workdir_that_cannot_be_used_are_one_sentence(runner, tmp_path):
    refused(runner.run(tmp_path / "x", rows=tmp_path / "nowhere"), 1, "there is no folder", "prepare")
    (tmp_path / "file").write_text("")
    refused(runner.run(tmp_path / "file"), 1, "is a file; name a folder")
    refused(runner.run(Path("/proc/run")), 1, "/proc/run")


def test_two_processes_cannot_train_in_one_workdir(runner):
    workdir = runner.folder / "twice"
    first = runner.start(workdir, train__steps=5000)
    while not (workdir / "metrics.jsonl").exists() and first.poll() is None:
        time.sleep(0.05)
    result = runner.run(workdir, train__steps=5000)
    first.kill()
    first.communicate()
    refused(result, 1, "another process is training in")


@pytest.mark.parametrize("room", ["200k", "40k"])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(runner, tmp_path, room):
    """Once too small for a checkpoint, once for the metrics too."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", disk]).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        result = runner.run(disk / "run", train__log_every=1)
        assert result[0] == 1 and "Traceback" not in result[1], result[1]
        assert result[1].count("error: ") == 1 and len(result[1]) < 2000
        subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
        code, output = runner.run(disk / "run", train__log_every=1)
        assert code == 0, output
    finally:
        subprocess.run(["umount", disk], check=True)


def copy_of(whole, folder, without=()):
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns(*without))
    return folder


def test_other_rows_of_the_same_tokenizer_are_refused(runner, whole):
    other = runner.folder / "more_rows"
    write_rows(other, train=95)
    refused(runner.run(whole, rows=other), 1, "does not hold the rows", "train.rows is 95, there 90")


def test_a_finished_run_without_its_checkpoints_does_not_start_again(runner, whole):
    workdir = copy_of(whole, runner.folder / "gone", ["checkpoints"])
    before = (workdir / "metrics.jsonl").read_bytes()
    refused(runner.run(workdir), 1, "its checkpoints are gone")
    assert (workdir / "metrics.jsonl").read_bytes() == before


def test_checkpoints_whose_config_is_lost_are_refused_and_get_no_other(runner, whole, tmp_path):
    workdir = copy_of(whole, tmp_path / "run", ["config.json"])
    refused(runner.run(workdir), 1, "has checkpoints and no config.json")
    assert not (workdir / "config.json").exists()


def test_a_config_that_was_edited_meets_its_checkpoints_with_what_differs(runner, whole, tmp_path):
    workdir = copy_of(whole, tmp_path / "run")
    text = (workdir / "config.json").read_text()
    (workdir / "config.json").write_text(text.replace('"feed_forward_width": 32', '"feed_forward_width": 64'))
    steps = sorted(path.name for path in (workdir / "checkpoints").iterdir())
    result = runner.run(workdir, model__feed_forward_width=64)
    refused(result, 1, "checkpoint 60 in", "the checkpoint has float32[1, 32], the config wants float32[1, 64]")
    assert sorted(path.name for path in (workdir / "checkpoints").iterdir()) == steps


def test_checkpoints_of_another_tokenizer_are_refused(runner, whole, tmp_path):
    workdir = copy_of(whole, tmp_path / "run")
    for meta in (workdir / "checkpoints").glob("*/meta/metadata"):
        meta.write_text(meta.read_text().replace('"tokenizer_sha256": "', '"tokenizer_sha256": "00'))
    refused(runner.run(workdir), 1, "were trained with another tokenizer")
    hook, filters = sys.unraisablehook, list(logging.getLogger("absl").filters)
    with pytest.raises(UserError, match="were trained with another tokenizer"):
        pretrain(read_config(workdir), workdir)  # in a notebook, which goes on
    assert sys.unraisablehook is hook and logging.getLogger("absl").filters == filters


def test_trackers_are_closed_where_the_next_cannot_be_opened(whole, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(pretraining, "JsonLines", lambda *args: opened.append(JsonLines(*args)) or opened[0])
    (tmp_path / "tensorboard").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*tensorboard"):
        pretrain(read_config(whole), tmp_path)
    assert opened[0]._file.closed


@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        ("metrics.jsonl", lambda text: "garbage\n" + text, "metrics.jsonl line 1 is no event"),
        ("metrics.jsonl", lambda text: "{}\n" + text, "metrics.jsonl line 1 is no event"),
        ("rows.json", lambda text: text[:50], "rows.json is damaged"),
        ("config.json", lambda text: text[:50], "config.json is damaged"),
        (
            "config.json",
            lambda text: text.replace('"norm": "pre",', ""),
            "config.json is damaged (it has no 'model.norm'; where another version wrote it, put that in",
        ),
        (
            "config.json",
            lambda text: text.replace('"norm":', '"nrom":'),
            "config.json is damaged (the config has no key",
        ),
    ],
)
def test_a_damaged_workdir_is_told_by_file_and_left_as_it_is(runner, whole, tmp_path, file, damage, words):
    workdir = copy_of(whole, tmp_path / "run")
    damaged = damage((workdir / file).read_text())
    (workdir / file).write_text(damaged)
    refused(runner.run(workdir), 1, words)
    assert (workdir / file).read_text() == damaged


def test_a_half_written_last_line_of_metrics_is_cut_off(runner, whole, tmp_path):
    workdir = copy_of(whole, tmp_path / "run")
    lines = (workdir / "metrics.jsonl").read_text().splitlines(keepends=True)
    (workdir / "metrics.jsonl").write_text("".join(lines[:-1]) + lines[-1][:20])
    code, output = runner.run(workdir)
    assert code == 0 and events(workdir)[-1]["kind"] == "summary", output


def test_damaged_rows_are_refused_by_file(runner, tmp_path):
    rows = copy_of(runner.rows, tmp_path / "rows")
    shard = rows / "train-00000.arrayrecord"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    refused(runner.run(tmp_path / "x", rows=rows), 1, "train-00000.arrayrecord is damaged", "bytes in place of")
    shard.write_bytes(bytes(len(content)))
    refused(runner.run(tmp_path / "y", rows=rows), 1, "is damaged in train-00000.arrayrecord")


def test_a_run_that_saves_at_the_end_only_is_saved_when_it_is_stopped_too(runner, whole):
    workdir = runner.folder / "at_the_end"
    process = runner.start(workdir, train__checkpoint_every=0)
    while process.poll() is None and not ((workdir / "metrics.jsonl").exists() and events(workdir, "train")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 75, output
    assert [path.name.isdigit() for path in (workdir / "checkpoints").iterdir()] == [True]


def test_one_row_a_batch_trains_and_more_rows_than_there_are_is_refused(runner, tmp_path):
    code, output = runner.run(tmp_path / "one", train__batch_size=1, train__steps=6)
    assert code == 0, output
    refused(runner.run(tmp_path / "many", train__batch_size=91), 2, "train.batch_size=91 is more than the 90 rows")


def test_a_reader_that_goes_away_does_not_end_the_run(runner, whole, tmp_path):
    line = shlex.join(map(str, command(runner.rows, tmp_path / "run"))) + " | head -n 1"
    subprocess.run(
        ["bash", "-c", line], env=environment(runner.folder / "cache"), cwd=ROOT, check=True, capture_output=True
    )
    while not (tmp_path / "run" / "checkpoints" / "60").exists():
        time.sleep(0.2)
    assert_same_end(tmp_path / "run", whole)
