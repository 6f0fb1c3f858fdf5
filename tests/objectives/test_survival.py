"""Killed again and again, a run ends as if nothing had been."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.objectives.test_pretraining import ROOT, assert_same_end, command, environment
from tests.tiny_rows import write_rows

FORKS = """
import json, os, sys
import posenc_jax.commands.pretrain, posenc_jax.objectives.pretraining
from posenc_jax.__main__ import main
for line in sys.stdin:
    words, log = json.loads(line)
    if (child := os.fork()) == 0:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1), os.dup2(file, 2)
        try:
            code = main(words)
            sys.stdout.flush()
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 99
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Importing takes longer than a run: a process that has done no more than that is forked for each."""


class Runs:
    """Runs on one folder of rows, one at a time."""

    def __init__(self, folder) -> None:
        self.folder, self.log = folder, folder / "log"
        write_rows(folder / "rows", train=90)
        self.process = subprocess.Popen(
            [sys.executable, "-c", FORKS], env=environment(folder / "cache"), cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def start(self, workdir) -> int:
        words = command(self.folder / "rows", workdir, train__checkpoint_every=6)
        print(json.dumps([words[words.index("pretrain") :], str(self.log)]), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self) -> int:
        return int(self.process.stdout.readline())

    def run(self, workdir) -> None:
        self.start(workdir)
        assert self.end() == 0, self.log.read_text()[-3000:]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("survival"))
    yield runs
    runs.process.stdin.close()
    runs.process.wait()


def unfinished(workdir):
    return list((workdir / "checkpoints").glob("*orbax-checkpoint-tmp*"))


def wait_for(pid, condition):
    while os.path.exists(f"/proc/{pid}/exe") and not condition():
        time.sleep(0.002)


def kill_once(runs, workdir, moments):
    """Starts the run and kills it: while it starts, while it trains, or while it saves. True if it was killed, False
    if it had ended by then."""
    metrics, launched = workdir / "metrics.jsonl", time.time()
    pid = runs.start(workdir)
    kind = moments.choice(["start", "training", "saving", "saving"])
    if kind == "start":
        time.sleep(moments.uniform(0, 1))
    else:
        wait_for(pid, lambda: metrics.exists() and metrics.stat().st_mtime >= launched)
        if kind == "training":
            time.sleep(moments.uniform(0, 0.3))
        else:
            wait_for(pid, lambda: unfinished(workdir))
            time.sleep(moments.uniform(0, 0.005))
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    code = runs.end()
    assert code in (-signal.SIGKILL, 0), runs.log.read_text()[-3000:]
    return code != 0


@pytest.mark.parametrize("times", [10, pytest.param(30, marks=pytest.mark.full)])
def test_killed_at_random_moments_also_while_it_saves_it_ends_bit_for_bit_the_same(runs, times):
    whole = runs.folder / f"whole{times}"
    runs.run(whole)
    moments, kills, torn, number = random.Random(times), 0, 0, 0
    while kills < times:
        number += 1
        workdir = runs.folder / f"killed{times}_{number}"
        while kills < times and kill_once(runs, workdir, moments):
            kills += 1
            torn += bool(unfinished(workdir))
        runs.run(workdir)
        assert_same_end(workdir, whole)
        assert not unfinished(workdir)
    assert torn >= times // 10
