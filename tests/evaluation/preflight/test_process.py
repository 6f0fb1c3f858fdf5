"""The compiling process: stubs that answer, refuse and die."""

import os
import subprocess
import sys

import pytest

from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.preflight import process
from posenc_jax.evaluation.preflight.process import compiler
from tests.evaluation.preflight.questions import make


@pytest.fixture(autouse=True)
def _libtpu_is_there(monkeypatch):
    monkeypatch.setattr(process, "check_compiler", lambda: None)


def stub(code):
    return (sys.executable, "-c", f"import sys, os, json, signal\nfor line in sys.stdin:\n    {code}")


def test_questions_go_to_one_process():
    with compiler(stub("print(json.dumps({'pid': os.getpid(), 'q': json.loads(line)}), flush=True)")) as ask:
        one, two = ask(make()), ask(make(topology="v5e:16x16"))
    assert one["pid"] == two["pid"]
    assert two["q"]["topology"] == ["v5e", [16, 16], 1] and two["q"]["config"]["model"]["vocab_size"] == 500


@pytest.mark.parametrize("code, kind", [(1, UserError), (2, UsageError)])
def test_a_refusal_is_that_of_training(code, kind):
    refusal = "print(json.dumps({'refused': 'no such thing', 'exit_code': %d}), flush=True)" % code  # noqa: UP031
    with compiler(stub(refusal)) as ask, pytest.raises(UserError, match="no such thing") as caught:
        ask(make())
    assert type(caught.value) is kind


def test_a_crash_is_told_in_one_sentence_and_the_next_question_starts_afresh(tmp_path):
    mark = tmp_path / "crashed"
    code = (
        f"mark = {str(mark)!r}; "
        "crash = not os.path.exists(mark); open(mark, 'w').close(); "
        "crash and (print('F1130 x.cc:1] Check failed: bad chips', file=sys.stderr, flush=True), "
        "print('*** trace', file=sys.stderr, flush=True), os.abort()); "
        "print('{}', flush=True)"
    )
    with compiler(stub(code)) as ask:
        with pytest.raises(UserError, match=r"v5e:2x4 died of signal 6; its last words: F1130 .* bad chips$"):
            ask(make())
        assert ask(make()) == {}


def test_a_process_that_ends_for_want_of_memory_is_told():
    with compiler(stub("os.kill(os.getpid(), signal.SIGKILL)")) as ask, pytest.raises(UserError, match="more memory"):
        ask(make())


def test_a_libtpu_that_another_holds_is_told():
    code = "print('ABORTED: see /tmp/libtpu_lockfile', file=sys.stderr, flush=True); sys.exit(1)"
    with compiler(stub(code)) as ask, pytest.raises(UserError, match="another process holds libtpu; end it, or wait"):
        ask(make())


def test_the_process_ends_with_the_questions(tmp_path):
    with compiler(stub("print(json.dumps({'pid': os.getpid()}), flush=True)")) as ask:
        pid = ask(make())["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_compiling_process_ends_with_the_one_that_asks_even_while_it_compiles():
    slow = "\n".join([
        "import sys, time",
        "from posenc_jax.evaluation.preflight import worker",
        "worker.answer = lambda question: (print('at work', file=sys.stderr, flush=True), time.sleep(600))",
        "worker.main()",
    ])  # fmt: skip
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", slow], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    process.stdin.write("{}\n")
    process.stdin.flush()
    assert process.stderr.readline() == "at work\n"
    process.stdin.close()  # as when the asking process is killed
    assert process.wait(timeout=60) == 0
