import jax
import jax.numpy as jnp
import pytest

from posenc_jax.errors import UsageError
from posenc_jax.training.profile import parse_steps, profiled


@pytest.mark.parametrize(("text", "steps"), [("steps=10..13", range(10, 14)), ("steps=7", range(7, 8))])
def test_steps_are_read(text, steps):
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["10..13", "steps=", "steps=0..3", "steps=5..4", "steps=a..b", ""])
def test_what_names_no_steps_is_refused_with_the_form(text):
    with pytest.raises(UsageError, match=r"write --profile steps=10\.\.13"):
        parse_steps(text)


@pytest.fixture
def calls(monkeypatch):
    """What was asked of the profiler between the steps."""
    events = []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: events.append("start"))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: events.append("stop"))
    return events


def run(events, steps, first, last, folder):
    def train_step(state, batch):
        events.append(batch)
        return state, {}

    with profiled(train_step, steps, first, folder) as step:
        for number in range(first + 1, last + 1):
            step(jnp.zeros(()), number)


def test_the_trace_holds_these_steps_and_no_other(calls, tmp_path):
    run(calls, range(3, 5), 0, 6, tmp_path)
    assert calls == [1, 2, "start", 3, 4, "stop", 5, 6]


def test_a_run_that_goes_on_within_them_traces_the_rest(calls, tmp_path):
    run(calls, range(3, 6), 3, 7, tmp_path)
    assert calls == ["start", 4, 5, "stop", 6, 7]


def test_a_run_that_stops_within_them_leaves_a_whole_trace(calls, tmp_path):
    run(calls, range(3, 9), 0, 4, tmp_path)
    assert calls == [1, 2, "start", 3, 4, "stop"]


def test_steps_that_are_past_are_not_traced_and_this_is_said(calls, tmp_path, capsys):
    run(calls, range(1, 3), 4, 6, tmp_path)
    assert calls == [5, 6] and "step 2 is past" in capsys.readouterr().err
