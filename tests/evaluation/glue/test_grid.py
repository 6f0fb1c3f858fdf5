"""Fine-tuning jobs: from the workdir's own encoder and tokenizer, over the whole dev set, each once."""

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import optax
import pytest

from posenc_jax.commands import glue as command
from posenc_jax.config import Config, MeshConfig, ModelConfig, PositionConfig, config_to_dict
from posenc_jax.data.tokenizer import train_tokenizer
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.glue import grid as glue
from posenc_jax.evaluation.glue.grid import run_glue, score_tasks
from posenc_jax.evaluation.glue.protocols import PROTOCOLS, override
from posenc_jax.evaluation.glue.scores import read_scores
from posenc_jax.evaluation.runs import read_runs
from posenc_jax.interop.pretrained import load_pretrained, restore_encoder
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.objectives.supervised import Supervised
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.checkpoint import Checkpoints
from posenc_jax.training.state import abstract_state, create_state
from posenc_jax.training.workdir import take_lock

MODEL = ModelConfig(
    layers=1, width=16, heads=2, feed_forward_width=32, positions=PositionConfig(max_length=64), dropout=0.0
)
WORDS = "good bad fine poor film plot actor scene story ending".split()


def sentences(count, seed):
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randrange(2, 6))) for _ in range(count)]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A workdir as `pretrain` leaves it, and its encoder."""
    run = tmp_path_factory.mktemp("run")
    tokenizer = train_tokenizer(sentences(200, 0), run / "tokenizer.model", 32)
    model = dataclasses.replace(MODEL, vocab_size=tokenizer.vocab_size)
    (run / "config.json").write_text(json.dumps(config_to_dict(Config(model=model))))
    (run / "rows.json").write_text(json.dumps({"length": 16, "tokenizer_sha256": tokenizer.sha256}))
    state = create_state(Mlm(model), optax.adam(1e-3), make_mesh(MeshConfig()), seed=7)
    checkpoints = Checkpoints(run)
    checkpoints.save(state, {"step": 0, "seconds": 0.0})
    checkpoints.wait()
    checkpoints.close()
    return run, state.params["encoder"]


@pytest.fixture
def workdir(original, tmp_path):
    return shutil.copytree(original[0], tmp_path / "run")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for split, count in (("train", 21), ("dev", 10)):
        texts, others = sentences(count, 1), sentences(count, 2)
        pairs = [f"{a}\t{b}\t{i % 6}" for i, (a, b) in enumerate(zip(texts, others, strict=True))]
        rows = {
            "SST-2": ["sentence\tlabel", *(f"{text}\t{i % 3 % 2}" for i, text in enumerate(texts))],
            "STS-B": ["sentence1\tsentence2\tscore", *pairs],
        }
        for task, lines in rows.items():
            (root / task).mkdir(exist_ok=True)
            (root / task / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def stub(monkeypatch):
    """Stands in for the training of a run, and lists the runs that asked for it."""
    ran = []

    def fine_tune(bench, encoder, learning_rate, seed, **hooks):
        ran.append((bench.spec.name, seed, encoder is not None))
        values = {metric: 0.5 + seed / 10 for metric in bench.spec.metrics}
        column = {"score": 0.5 + seed / 10, "metrics": values, "majority": 0.25, "majorities": {}, "rows": 10}
        answers = {split: np.full(3, seed, np.float32) for split in bench.test}
        notes = ["a note"] if seed == 1 else []
        part = {"score": column["score"], "metrics": values, "columns": {bench.spec.name: column}, "steps": 3}
        return {**part, "seconds": 1.0, "notes": notes}, answers

    monkeypatch.setattr(glue, "fine_tune", fine_tune)
    return ran


def test_the_encoder_is_the_pretrained_one(original):
    run, saved = original
    target = abstract_state(Supervised(load_pretrained(run).model, 2), optax.identity(), make_mesh(MeshConfig())).params
    encoder, name = restore_encoder(run, target["encoder"])
    assert name.startswith("step 0 (")
    assert jax.tree.structure(encoder) == jax.tree.structure(saved)
    for a, b in zip(jax.tree.leaves(encoder), jax.tree.leaves(saved), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_task_is_trained_scored_and_written_down(workdir, data):
    (record,) = run_glue(workdir, data, ["SST-2"], epochs=1, batch_size=8)
    assert (record["task"], record["protocol"], record["split"], record["seed"]) == ("SST-2", "default", "dev", 0)
    column = record["columns"]["SST-2"]
    assert (column["rows"], record["steps"], column["majority"]) == (10, 3, 0.7)
    assert record["score"] == column["score"] in np.arange(11) / 10
    assert record["settings"]["protocol"] == "default, 1 epoch, 8 rows a step"
    assert read_scores(workdir) == [record]
    report = (workdir / "report.md").read_text()
    assert "| SST-2 | accuracy |" in report and "majority" in report and "![scores](scores.png)" in report
    table = json.loads((workdir / "glue" / "table.json").read_text())
    assert table["lines"][0]["score"] == record["score"] and (workdir / "scores.png").exists()


def test_the_same_command_again_trains_nothing(workdir, data, stub):
    first = run_glue(workdir, data, ["SST-2"], seeds=2)
    assert stub == [("SST-2", 0, True), ("SST-2", 1, True)]
    assert run_glue(workdir, data, ["SST-2"], seeds=2) == first
    assert len(stub) == 2


def test_other_settings_seeds_weights_or_data_are_other_jobs(workdir, data, stub, tmp_path):
    def jobs(*args, **settings):
        before = len(stub)
        run_glue(workdir, *args, ["SST-2"], **settings)
        return len(stub) - before

    assert jobs(data) == 1
    assert jobs(data, seeds=3) == 2
    assert jobs(data, epochs=1) == 1
    assert jobs(data, learning_rate=1e-3) == 1
    assert jobs(data, from_scratch=True) == 1 and stub[-1] == ("SST-2", 0, False)
    changed = shutil.copytree(data, tmp_path / "data")
    (changed / "SST-2" / "train.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
    assert jobs(changed) == 1
    assert jobs(data) == 0
    assert len(read_scores(workdir)) == 7


def test_a_kill_loses_at_most_the_job_at_work(workdir, data, monkeypatch, stub):
    working = glue.fine_tune

    def killed(bench, *args, **hooks):
        if bench.spec.name == "STS-B":
            raise KeyboardInterrupt
        return working(bench, *args, **hooks)

    monkeypatch.setattr(glue, "fine_tune", killed)
    with pytest.raises(KeyboardInterrupt):
        run_glue(workdir, data, ["SST-2", "STS-B"])
    assert [record["task"] for record in read_scores(workdir)] == ["SST-2"]
    monkeypatch.setattr(glue, "fine_tune", working)
    run_glue(workdir, data, ["SST-2", "STS-B"])
    assert [task for task, _, _ in stub] == ["SST-2", "STS-B"]


def test_a_swapped_tokenizer_is_refused(workdir, data, stub):
    train_tokenizer(sentences(50, 9), workdir / "tokenizer.model", 30)
    with pytest.raises(UserError, match="tokenizer swapped"):
        run_glue(workdir, data, ["SST-2"])


def test_a_missing_task_is_told_before_any_training(workdir, data, stub):
    with pytest.raises(UserError, match="no folder RTE"):
        run_glue(workdir, data, ["SST-2", "RTE"])
    with pytest.raises(UsageError, match="no task 'SST2'"):
        run_glue(workdir, data, ["SST-2", "SST2"])
    assert stub == []


def test_a_folder_without_a_run_or_a_checkpoint_is_refused(workdir, data, stub, tmp_path):
    with pytest.raises(UserError, match="no folder"):
        run_glue(tmp_path / "nowhere", data, ["SST-2"])
    with pytest.raises(UserError, match="not a workdir"):
        run_glue(data, data, ["SST-2"])
    shutil.rmtree(workdir / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint"):
        run_glue(workdir, data, ["SST-2"])
    assert stub == []


def test_a_damaged_record_is_refused_by_name_and_kept(workdir, data, stub):
    run_glue(workdir, data, ["SST-2"])
    (path,) = (workdir / "glue" / "records").iterdir()
    path.write_text(path.read_text()[:50])
    with pytest.raises(UserError, match=r"SST-2-default-.*\.json is damaged"):
        run_glue(workdir, data, ["SST-2"])
    assert len(path.read_text()) == 50


@pytest.mark.parametrize(
    "change",
    [dict(columns=[]), dict(columns={"SST-2": {}}), dict(score="0.5"), dict(settings={}), dict(answered=None), []],
)
def test_a_record_of_another_shape_is_refused_by_name(change, workdir, data, stub):
    run_glue(workdir, data, ["SST-2"])
    (path,) = (workdir / "glue" / "records").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), **change} if change else change))
    for again in (lambda: run_glue(workdir, data, ["SST-2"]), lambda: read_runs([workdir])):
        with pytest.raises(UserError, match=r"SST-2-default-.*\.json is damaged"):
            again()


def test_a_second_scorer_of_the_same_workdir_is_refused(workdir, data):
    (workdir / "glue").mkdir()
    with take_lock(workdir / "glue", ""), pytest.raises(UserError, match="another process is scoring"):
        run_glue(workdir, data, ["SST-2"], epochs=1, batch_size=8)


def test_a_score_names_the_step_whose_weights_were_read(workdir, data, stub, capsys):
    (workdir / "checkpoints" / "999").mkdir()
    (record,) = run_glue(workdir, data, ["SST-2"])
    assert record["start"].startswith("step 0 (") and "checkpoint 999 cannot be read" in capsys.readouterr().out


def test_a_failed_run_is_recorded_told_and_run_again_by_the_next_call(workdir, data, monkeypatch, stub, capsys):
    working, broken = glue.fine_tune, []

    def failing(bench, encoder, learning_rate, seed, **hooks):
        if seed == 1:
            broken.append(seed)
            raise UserError("the loss is not finite at step 3; lower the rate")
        return working(bench, encoder, learning_rate, seed, **hooks)

    monkeypatch.setattr(glue, "fine_tune", failing)
    protocol = override(PROTOCOLS["default"], seeds=3)
    outcome = score_tasks(workdir, data, ["SST-2"], protocol)
    assert [record["seed"] for record in outcome.records] == [0, 2] and broken == [1]
    assert [record["failed"] for record in outcome.failed] == ["the loss is not finite at step 3"]
    report = (workdir / "report.md").read_text()
    assert "SST-2 seed 1: failed, not scored: the loss is not finite" in report and "| 60.00 |" in report
    with pytest.raises(UserError, match=r"1 of the runs failed.*SST-2 seed 1"):
        run_glue(workdir, data, ["SST-2"], seeds=3)
    assert broken == [1, 1] and len(stub) == 2
    monkeypatch.setattr(glue, "fine_tune", working)
    assert len(run_glue(workdir, data, ["SST-2"], seeds=3)) == 3 and len(stub) == 3
    assert "failed" not in (workdir / "report.md").read_text()


def test_all_is_what_is_there_and_the_rest_is_named(workdir, data, stub):
    outcome = score_tasks(workdir, data, ["all"], PROTOCOLS["quick"])
    assert [record["task"] for record in outcome.records] == ["SST-2", "STS-B"]
    assert len(outcome.skipped) == 7 and any(line.startswith("RTE is left out: ") for line in outcome.skipped)
    with pytest.raises(UsageError, match="stands alone"):
        score_tasks(workdir, data, ["all", "RTE"], PROTOCOLS["quick"])
    with pytest.raises(UsageError, match="AX has nothing to train on"):
        score_tasks(workdir, data, ["AX"], PROTOCOLS["quick"])
    with pytest.raises(UserError, match="no task that could be scored; CoLA is left out"):
        score_tasks(workdir, workdir, ["all"], PROTOCOLS["quick"])


def test_answers_to_the_test_files_are_kept_and_asked_for_later_they_are_made_up_for(workdir, data, stub, tmp_path):
    more = shutil.copytree(data, tmp_path / "data")
    (more / "SST-2" / "test.tsv").write_text("index\tsentence\n0\tgood film\n1\tbad\n2\tfine\n")

    def answered(names=("SST-2",), **settings):
        outcome = score_tasks(workdir, more, list(names), PROTOCOLS["quick"], **settings)
        return outcome, len(stub)

    assert answered()[1] == 1
    outcome, ran = answered(test=True)
    assert ran == 2  # the run is done once more, for its answers
    path = workdir / "glue" / "predictions" / f"{outcome.records[0]['id']}.npz"
    np.testing.assert_array_equal(np.load(path)["test"], np.zeros(3, np.float32))
    assert answered(test=True)[1] == answered()[1] == 2
    (more / "SST-2" / "test.tsv").write_text("index\tsentence\n0\tother film\n")
    assert answered(test=True)[1] == 3
    path.unlink()
    assert answered(test=True)[1] == 4
    with pytest.raises(UserError, match=r"has no file test\.tsv"):
        answered(["STS-B"], test=True)
    outcome, _ = answered(["all"], test=True)
    assert any("STS-B test is left out" in line for line in outcome.skipped)


def test_mnli_is_two_columns_and_answers_the_diagnostic_set(workdir, tmp_path):
    (tmp_path / "MNLI").mkdir()
    (tmp_path / "diagnostic").mkdir()
    labels = ("contradiction", "entailment", "neutral")
    for split in ("train", "dev_matched", "dev_mismatched"):
        rows = [
            f"{a}\t{b}\t{labels[i % 3]}" for i, (a, b) in enumerate(zip(sentences(9, 1), sentences(9, 2), strict=True))
        ]
        (tmp_path / "MNLI" / f"{split}.tsv").write_text("\n".join(["sentence1\tsentence2\tgold_label", *rows]) + "\n")
    (tmp_path / "diagnostic" / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\tgood\tbad\n")
    protocol = override(PROTOCOLS["quick"], epochs=1, batch_size=8)
    (record,) = score_tasks(workdir, tmp_path, ["all"], protocol, test=True).records
    assert list(record["columns"]) == ["MNLI-m", "MNLI-mm"] and list(record["answered"]) == ["AX"]
    answers = np.load(workdir / "glue" / "predictions" / f"{record['id']}.npz")
    assert answers["AX"].shape == (1,) and answers["AX"].dtype == np.float32
    assert "| MNLI-mm | accuracy |" in (workdir / "report.md").read_text()


LINE = ["--tasks", "SST-2", "--protocol", "quick", "--epochs", "40", "--batch-size", "8", "--seeds", "3"]


def start_process(workdir, data, *words):
    line = [sys.executable, "-m", "posenc_jax", "glue", "--workdir", str(workdir), "--data", str(data), *LINE, *words]
    one_device = {**os.environ, "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("count=8", "count=1")}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=one_device)


def test_a_killed_grid_goes_on_in_two_processes_and_scores_as_in_one(workdir, data, original, tmp_path, monkeypatch):
    process, records = start_process(workdir, data), workdir / "glue" / "records"
    while not list(records.glob("*.json")):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    done = {path: path.stat().st_mtime_ns for path in records.glob("*.json")}
    assert len(done) < 3
    process = start_process(workdir, data, "--jobs", "2")
    printed, _ = process.communicate(timeout=200)
    assert process.returncode == 0 and f"jobs: {len(done)} done" in printed, printed
    assert {path: path.stat().st_mtime_ns for path in done} == done  # what was done stays as it was
    other = shutil.copytree(original[0], tmp_path / "other")
    monkeypatch.setattr(glue, "make_mesh", lambda config: make_mesh(config, jax.devices()[:1]))
    score_tasks(other, data, ["SST-2"], override(PROTOCOLS["quick"], epochs=40, batch_size=8, seeds=3))
    assert len(read_scores(other)) == 3
    for ours, theirs in zip(read_scores(workdir), read_scores(other), strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_with_75_and_says_what_is_done(number, workdir, data, monkeypatch, stub, capsys):
    working = glue.fine_tune

    def signalled(bench, encoder, learning_rate, seed, **hooks):
        if seed == 1:
            os.kill(os.getpid(), number)
            time.sleep(10)
        return working(bench, encoder, learning_rate, seed, **hooks)

    monkeypatch.setattr(glue, "fine_tune", signalled)
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    try:
        code = command.main(["--workdir", str(workdir), "--data", str(data), *LINE])
    finally:
        for one, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(one, handler)
    told = capsys.readouterr()
    assert code == 75 and "run the same line again" in told.err
    assert "stopped: 1 of 3 runs are done and stay" in told.out and len(read_scores(workdir)) == 1
