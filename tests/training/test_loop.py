import itertools

import jax.numpy as jnp
import pytest

from posenc_jax.errors import UserError
from posenc_jax.training.loop import Every, fit
from posenc_jax.training.state import TrainState


def run(total, *, start=0, stop_after=None, losses=None, every=Every(), **hooks):
    """A step that only counts, and what the loop did, in order."""
    events = []

    def step(state, batch):
        events.append(("step", batch))
        loss = (losses or {}).get(int(state.step), float(state.step))
        return state.replace(step=state.step + 1), {"loss": jnp.float32(loss)}

    hooks = {
        "on_log": lambda step, values: events.append(("log", step, values["loss"])),
        "on_evaluate": lambda state: events.append(("evaluate", int(state.step))),
        "on_save": lambda state: events.append(("save", int(state.step))),
        **hooks,
    }
    if stop_after is not None:
        hooks["should_stop"] = lambda done: done - start >= stop_after
    state = TrainState(step=jnp.int32(start), params={}, opt_state=())
    return fit(state, step, itertools.count(start), total_steps=total, every=every, **hooks), events


def test_it_logs_evaluates_and_saves_when_due_and_at_the_end():
    state, events = run(7, every=Every(log=2, evaluate=3, save=5))
    assert int(state.step) == 7
    assert [e[1] for e in events if e[0] == "log"] == [2, 4, 6, 7]
    assert [e[1] for e in events if e[0] == "evaluate"] == [3, 6, 7]
    assert [e[1] for e in events if e[0] == "save"] == [5, 7]


def test_a_log_is_the_mean_over_the_steps_since_the_last():
    _, events = run(6, every=Every(log=3))
    assert [e[2] for e in events if e[0] == "log"] == [1.0, 4.0]


def test_it_goes_on_from_the_states_step_with_the_next_batches():
    _, events = run(9, start=4, every=Every(log=3))
    assert [e[1] for e in events if e[0] == "step"] == [4, 5, 6, 7, 8]
    assert [e[1] for e in events if e[0] == "log"] == [6, 9]


def test_stopped_it_saves_where_it_stands_and_once_only():
    state, events = run(100, stop_after=3, every=Every(save=50))
    assert int(state.step) == 3 and [e for e in events if e[0] == "save"] == [("save", 3)]
    _, events = run(100, stop_after=4, every=Every(save=2))
    assert [e for e in events if e[0] == "save"] == [("save", 2), ("save", 4)]


def test_a_loss_that_is_not_finite_stops_the_run_and_is_never_saved():
    saved = []
    with pytest.raises(UserError, match=r"not finite at step 4; .*optimizer.learning_rate"):
        run(10, losses={3: float("nan")}, every=Every(save=1), on_save=lambda state: saved.append(int(state.step)))
    assert saved == [1, 2, 3]


NAN = float("nan")


def skips(total, losses, **options):
    """What was told of skipped steps, what was saved, and the values of the logs."""
    told, saved, logs = [], [], []
    state, _ = run(
        total,
        losses=losses,
        on_skip=lambda step, rows, values: told.append((step, rows, str(values["loss"]))),
        on_save=lambda state: saved.append(int(state.step)),
        on_log=lambda step, values: logs.append({name: values[name] for name in values.keys() & {"loss", "skipped"}}),
        **options,
    )
    return state, told, saved, logs


def test_a_skipped_step_is_told_counted_and_in_no_mean():
    every = Every(log=4, save=2)
    state, told, saved, logs = skips(8, {1: NAN, 2: float("inf"), 5: NAN}, every=every, skipped_updates=2)
    assert int(state.step) == 8 and told == [(2, [], "nan"), (3, [], "inf"), (6, [], "nan")]
    assert logs == [{"loss": 1.5, "skipped": 2}, {"loss": (4 + 6 + 7) / 3, "skipped": 1}]
    assert saved == [4, 8]  # not 2 and 6, right after one


def test_only_skips_in_a_row_end_a_run():
    alternate = {step: NAN for step in range(0, 20, 2)}
    assert len(skips(20, alternate, skipped_updates=1)[1]) == 10
    with pytest.raises(UserError, match=r"the loss is not finite at step 4, nor one of the 1 updates before it; "):
        skips(20, {2: NAN, 3: NAN}, skipped_updates=1)


def test_a_window_of_skips_alone_and_a_skipped_last_step_leave_a_saved_run():
    _, told, saved, logs = skips(4, {2: NAN, 3: NAN}, every=Every(log=2, save=2), skipped_updates=9)
    assert saved == [2, 4] and len(told) == 2
    assert logs[0] == {"loss": 0.5} and logs[1]["skipped"] == 2 and logs[1]["loss"] != logs[1]["loss"]


def test_a_gradient_that_is_not_finite_is_called_by_its_name():
    def step(state, batch):
        values = {"loss": 1.0, "grad_norm": float("inf"), "skipped": 1.0}
        return state.replace(step=state.step + 1), {name: jnp.float32(value) for name, value in values.items()}

    told = []
    batches = iter([{"row": jnp.arange(3)}, {"row": jnp.arange(3, 6)}])
    with pytest.raises(UserError, match="the gradient is not finite at step 1;"):
        fit(
            TrainState(step=jnp.int32(0), params={}, opt_state=()),
            step,
            batches,
            total_steps=2,
            on_skip=lambda *skip: told.append(skip),
        )
    assert told == [(1, [0, 1, 2], {"loss": 1.0, "grad_norm": float("inf")})]


def test_nothing_to_do_does_nothing():
    state, events = run(5, start=5, every=Every(save=1, log=1))
    assert events == [] and int(state.step) == 5
