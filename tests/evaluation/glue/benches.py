"""Benches for the tests of jobs, in a file that imports nothing heavy: each process of a test imports it."""

import errno
import os
import signal
import time
from pathlib import Path

from posenc_jax.errors import UserError


class Counting:
    """Notes in a file who did what; some jobs fail, as their name says."""

    def __init__(self, folder, failing=(), start="here"):
        self.start, self._log, self._failing = start, Path(folder) / "log", dict(failing)

    def run(self, job, on_step):
        with self._log.open("a") as log:
            log.write(f"{job.id} {os.getpid()}\n")
        on_step(0.5, "half")
        tries = self._log.read_text().count(f"{job.id} ")
        kind = self._failing.get(job.id)
        if kind == "again":
            raise UserError("the loss is not finite; lower the rate")
        if kind == "always" or (kind == "once" and tries == 1):
            raise ValueError("no memory\nlong tail")
        if kind == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if kind == "killed" and tries == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return job.id.upper()


class Killed:
    def __init__(self, start):
        self.start = start

    def run(self, job, on_step):
        os.kill(os.getpid(), signal.SIGKILL)


def refusing():
    raise UserError("no checkpoint")


class Slow:
    start = "here"

    def __init__(self, folder):
        self._folder = Path(folder)

    def run(self, job, on_step):
        (self._folder / str(os.getpid())).touch()
        while True:
            time.sleep(0.05)
            on_step(0.1, "")
