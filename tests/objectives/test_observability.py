"""What a run says of itself while it trains, and that it compiles once."""

import collections
import itertools
import json
import logging

import jax
import jax.numpy as jnp
import optax
import pytest

from posenc_jax.config_files import load_config
from posenc_jax.errors import UsageError
from posenc_jax.objectives.pretraining import pretrain
from tests.tiny_rows import write_rows


def settings(rows, **changes):
    small = {
        "model.width": 16, "model.feed_forward_width": 32, "model.layers": 1, "train.steps": 20, "train.batch_size": 16,
        "train.log_every": 5, "train.eval_every": 10, "train.eval_rows": 16, "train.checkpoint_every": 10,
        "optimizer.warmup": 2, "data.path": str(rows),
    }  # fmt: skip
    return load_config("configs/tupe.py:tupe_r,tiny,length=16", {**small, **changes})


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("observed") / "rows"
    write_rows(folder, train=90)
    return folder


@pytest.fixture(scope="module")
def observed(rows, tmp_path_factory):
    """Events of a run, the names of what was compiled during it, and its folder."""
    compiled = collections.Counter()

    class Listener(logging.Handler):
        def emit(self, record):
            words = record.getMessage().split()
            if words[:3] == ["Finished", "XLA", "compilation"]:
                compiled[words[4]] += 1

    workdir = tmp_path_factory.mktemp("observed") / "run"
    logger, listener = logging.getLogger("jax._src.dispatch"), Listener()
    logger.addHandler(listener)
    with jax.log_compiles():
        pretrain(settings(rows), workdir, profile_steps=range(12, 14))
    logger.removeHandler(listener)
    events = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return events, compiled, workdir


def test_twenty_steps_and_two_validations_compile_their_programs_once(observed):
    _, compiled, _ = observed
    assert compiled["jit(step)"] == compiled["jit(look)"] == 1


def test_a_log_line_holds_loss_rate_gradient_speed_waiting_and_time_left(observed):
    events, _, _ = observed
    for event in [event for event in events if event["kind"] == "train"]:
        for name in ("loss", "learning_rate", "grad_norm", "tokens_per_second", "data_wait", "seconds_left"):
            assert event[name] >= 0, name
        assert "mfu" not in event  # nobody publishes what a simulated device can do
    assert [event for event in events if event["kind"] == "train"][-1]["seconds_left"] == 0


def test_utilisation_is_that_of_the_chip(rows, tmp_path, monkeypatch):
    from posenc_jax.objectives import pretraining
    from posenc_jax.parallel.chips import CHIPS

    monkeypatch.setattr(pretraining, "chip_of", lambda kind: CHIPS[1])
    pretrain(settings(rows), tmp_path / "run")
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    flops = pretraining.step_flops(pretraining.resolve(settings(rows), pretraining.read_rows_info(rows)), 16).total
    for event in [event for event in events if event["kind"] == "train"]:
        step_seconds = 16 * 16 / event["tokens_per_second"]
        assert event["mfu"] == pytest.approx(flops / step_seconds / (197e12 * jax.device_count()))


def test_a_trace_of_the_steps_asked_for_is_written(observed):
    _, _, workdir = observed
    (trace,) = workdir.glob("profile/plugins/profile/*/*.xplane.pb")
    assert trace.stat().st_size > 1000


def test_a_trace_of_steps_that_never_come_is_refused_before_anything_is_written(rows, tmp_path):
    with pytest.raises(UsageError, match=r"--profile asks for step 21, and train\.steps=20"):
        pretrain(settings(rows), tmp_path / "run", profile_steps=range(15, 22))
    assert not (tmp_path / "run").exists()


def test_the_rate_logged_is_that_of_the_optimizers_own_count_over_skips_and_a_restart(rows, tmp_path, monkeypatch):
    """Two updates are left out, one before a restart and one after it: they move the schedule two steps back."""
    from posenc_jax.objectives import pretraining
    from posenc_jax.training.checkpoint import Checkpoints
    from posenc_jax.training.optimizer import make_schedule

    make, saved = pretraining.make_train_step, {}

    def spoiling(*args, **options):
        train_step = make(*args, **options)

        def step(state, batch):
            number = int(state.step) + 1
            if number not in (4, 9):
                return train_step(state, batch)
            kept = jax.tree.map(jnp.copy, state.params)
            state, metrics = train_step(state.replace(params=jax.tree.map(lambda leaf: leaf * jnp.nan, kept)), batch)
            return state.replace(params=kept), metrics

        return step

    def save(self, state, meta, _save=Checkpoints.save):
        (count,) = [n.count for n in jax.tree.leaves(state.opt_state, is_leaf=is_schedule) if is_schedule(n)]
        saved[int(state.step)] = int(count)
        _save(self, state, meta)

    def is_schedule(node):
        return isinstance(node, optax.ScaleByScheduleState)

    monkeypatch.setattr(pretraining, "make_train_step", spoiling)
    monkeypatch.setattr(Checkpoints, "save", save)
    changes = {"train.log_every": 1, "train.skipped_updates": 3, "train.steps": 12, "train.checkpoint_every": 1}
    config = settings(rows, **changes)
    for stop in (6, 99):
        steps = itertools.count(1)
        pretrain(config, tmp_path / "run", should_stop=lambda: next(steps) > stop)  # noqa: B023
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = {event["step"]: event["learning_rate"] for event in events if event["kind"] == "train"}
    schedule = make_schedule(config.optimizer, 12, config.optimizer.warmup)
    assert saved[3] == 3 and saved[6] == 5 and saved[12] == 10
    for step, count in saved.items():
        assert rates[step] == pytest.approx(float(schedule(count - 1))), step
