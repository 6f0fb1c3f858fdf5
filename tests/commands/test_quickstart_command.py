"""`quickstart` at the command line: an interruption ends with 75 in any act, and saves while pre-training."""

import signal

import pytest

from posenc_jax.commands import quickstart as command
from posenc_jax.evaluation import quickstart as module


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_a_pre_training_to_save_and_ends_any_other_act(number, monkeypatch, capsys):
    seen = []

    def acts(out, *, stopping, **settings):
        with stopping() as should_stop:
            seen.append(should_stop())
            signal.raise_signal(number)
            seen.append(should_stop())
        signal.raise_signal(number)
        seen.append("never")

    monkeypatch.setattr(module, "quickstart", acts)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        assert command.main([]) == 75
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [False, True] and "run the same line again" in capsys.readouterr().out


@pytest.mark.parametrize(("finished", "code"), [(True, 0), (False, 75)])
def test_the_exit_code_says_whether_it_is_done(finished, code, monkeypatch):
    monkeypatch.setattr(module, "quickstart", lambda out, **settings: finished)
    assert command.main([]) == code


def test_no_step_is_wrong_use(capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(["--steps", "0"])
    assert caught.value.code == 2
