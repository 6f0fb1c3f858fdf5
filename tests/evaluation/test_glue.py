"""Fine-tuning jobs: from the workdir's own encoder and tokenizer, over the whole dev set, each once."""

import dataclasses
import json
import random
import shutil

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from posenc_jax.config import Config, MeshConfig, ModelConfig, PositionConfig, config_to_dict
from posenc_jax.data.tasks import TASKS
from posenc_jax.data.tokenizer import train_tokenizer
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation import glue
from posenc_jax.evaluation.finetune import Protocol, fine_tune, make_objective, predict
from posenc_jax.evaluation.glue import load_task, make_job, read_scores, run_glue
from posenc_jax.evaluation.pretrained import load_pretrained, restore_encoder
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.parallel.mesh import AXES, make_mesh
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
    """Stands in for the training of a job, and lists the jobs that asked for it."""
    ran = []

    def fine_tune(job, encoder, seed, **hooks):
        ran.append((job.task.name, seed, encoder is not None))
        values = {metric: 0.5 + seed / 10 for metric in job.task.metrics}
        majority = dict.fromkeys(job.task.metrics, 0.25)
        numbers = {"rows": 10, "steps": 3, "seconds": 1.0, "notes": ["a note"] if seed == 1 else []}
        return {"score": 0.5 + seed / 10, "metrics": values, "majority": majority, **numbers}

    monkeypatch.setattr(glue, "fine_tune", fine_tune)
    return ran


def test_the_encoder_is_the_pretrained_one_and_the_head_is_fresh(original):
    run, saved = original
    pretrained = load_pretrained(run)
    objective = make_objective(glue.find_task("SST-2"), pretrained.model)
    target = abstract_state(objective, optax.identity(), make_mesh(MeshConfig())).params
    encoder, name = restore_encoder(run, target["encoder"])
    assert name.startswith("step 0 (")
    assert jax.tree.structure(encoder) == jax.tree.structure(saved)
    for a, b in zip(jax.tree.leaves(encoder), jax.tree.leaves(saved), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_task_is_trained_scored_and_written_down(workdir, data):
    (record,) = run_glue(workdir, data, ["SST-2"], epochs=1, batch_size=8)
    assert (record["task"], record["metric"], record["split"], record["seed"]) == ("SST-2", "accuracy", "dev", 0)
    assert (record["rows"], record["steps"], record["majority"]) == (10, 3, 0.7)
    assert record["score"] in np.arange(11) / 10
    assert read_scores(workdir) == [record]
    report = (workdir / "report.md").read_text()
    assert "| SST-2 | accuracy |" in report and "median" in report and "majority" in report


@pytest.fixture(scope="module")
def job(original, data):
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), AXES)
    return make_job(load_task(data, "STS-B"), load_pretrained(original[0]), Protocol(1e-2, 1, 8), mesh)


@pytest.fixture(scope="module")
def encoder(job, original):
    return restore_encoder(original[0], abstract_state(job.objective, job.optimizer, job.mesh).params["encoder"])[0]


def test_seeds_differ_and_share_one_compiled_step(job, encoder):
    results = [fine_tune(job, encoder, seed) for seed in (0, 1)]
    assert results[0]["score"] != results[1]["score"]
    assert set(results[0]["metrics"]) == {"pearson", "spearman"} and results[0]["majority"]["pearson"] == 0
    assert job.train_step._cache_size() == len(job.train) == 1


def test_the_whole_dev_set_is_scored_whatever_the_batch_size(job):
    params = create_state(job.objective, job.optimizer, job.mesh, 3).params
    other = dataclasses.replace(job, protocol=dataclasses.replace(job.protocol, batch_size=16))
    answers = [predict(one, params) for one in (job, other)]
    assert len(answers[0]) == 10 and len(set(answers[0])) > 5
    np.testing.assert_allclose(*answers, rtol=1e-5)


def test_a_run_that_diverges_scores_zero_and_says_so(job, encoder):
    broken = jax.tree.map(lambda leaf: leaf * np.nan, encoder)
    result = fine_tune(job, broken, 0)
    assert result["score"] == 0.0
    assert any("the loss is not finite at step 1" in note for note in result["notes"])


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

    def killed(job, encoder, seed, **hooks):
        if job.task.name == "STS-B":
            raise KeyboardInterrupt
        return working(job, encoder, seed, **hooks)

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


def test_damaged_scores_are_refused_and_kept(workdir, data, stub):
    run_glue(workdir, data, ["SST-2"])
    path = workdir / "glue" / "scores.json"
    path.write_text(path.read_text()[:50])
    with pytest.raises(UserError, match="damaged"):
        run_glue(workdir, data, ["SST-2"])
    assert len(path.read_text()) == 50


def test_a_second_scorer_of_the_same_workdir_is_refused(workdir, data):
    (workdir / "glue").mkdir()
    with take_lock(workdir / "glue", ""), pytest.raises(UserError, match="another process is scoring"):
        run_glue(workdir, data, ["SST-2"], epochs=1, batch_size=8)


def test_a_score_names_the_step_whose_weights_were_read(workdir, capsys):
    (workdir / "checkpoints" / "999").mkdir()
    model = load_pretrained(workdir).model
    objective = make_objective(TASKS["SST-2"], model)
    target = abstract_state(objective, optax.identity(), make_mesh(MeshConfig())).params
    _, name = restore_encoder(workdir, target["encoder"])
    assert name.startswith("step 0 (")
    assert "checkpoint 999 cannot be read" in capsys.readouterr().out
