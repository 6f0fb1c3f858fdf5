"""How far a list of jobs is: a bar on a terminal, plain lines anywhere else."""

import os
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from posenc_jax.evaluation.glue.jobs import Job
from posenc_jax.evaluation.report import duration

PLAIN_SECONDS = 5.0
"""Least time between two plain lines about jobs at work."""


class JobProgress:
    """Counts jobs done, running, failed and left, and from the work done so far the time the rest will take."""

    def __init__(self, jobs: Sequence[Job], found: int) -> None:
        """`jobs` are those to do; `found` were done by an earlier call."""
        self._jobs, self._found, self._began = list(jobs), found, time.monotonic()
        self._shares: dict[str, float] = {}
        self._ended: set[str] = set()
        self.done, self.failed = 0, 0
        self._told = -PLAIN_SECONDS
        self._bar = None
        console = Console()
        if console.is_terminal:
            columns = (BarColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task(self.line(), total=max(1.0, sum(job.work for job in jobs)))
            self._bar.start()

    def begin(self, job: Job) -> None:
        self._shares[job.id] = 0.0
        self._show(job, "")

    def step(self, job: Job, share: float, note: str) -> None:
        """`note` is empty where a step is only counted."""
        self._shares[job.id] = share
        self._show(job, note)

    def again(self, job: Job, reason: str) -> None:
        """It failed, and waits to be tried once more."""
        self._shares.pop(job.id, None)
        self.say(f"{job.title}  will be tried once more: {reason}")

    def end(self, job: Job, line: str, *, failed: bool = False) -> None:
        self._shares.pop(job.id, None)
        self._ended.add(job.id)
        self.failed += failed
        self.done += not failed
        self.say(f"{job.title}  {line}")
        self.say(self.line()) if not self._bar else self._show(job, "")

    def line(self) -> str:
        """As "jobs: 3 done, 1 running (CoLA, seed 0), 5 left, ETA 2 min 05 s"."""
        running = [job.title for job in self._jobs if job.id in self._shares]
        left = len(self._jobs) - len(self._ended) - len(running)
        parts = [
            f"{self._found + self.done} done",
            f"{len(running)} running" + (f" ({'; '.join(running)})" * bool(running)),
        ]
        parts += [f"{self.failed} failed"] * bool(self.failed)
        parts += [f"{left} left"]
        if left or running:
            parts += [f"ETA {self._left()}"]
        return f"jobs: {', '.join(parts)}"

    def say(self, line: str) -> None:
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False)
            return
        try:
            print(line, flush=True)
        except BrokenPipeError:  # whoever read along has gone; the jobs go on
            sys.stdout = open(os.devnull, "w")

    def close(self) -> None:
        if self._bar:
            self._bar.stop()

    def _worked(self) -> float:
        ended = sum(job.work for job in self._jobs if job.id in self._ended)
        return ended + sum(job.work * self._shares.get(job.id, 0.0) for job in self._jobs)

    def _left(self) -> str:
        worked = self._worked()
        if not worked:
            return "unknown yet"
        rest = sum(job.work for job in self._jobs) - worked
        return duration((time.monotonic() - self._began) * rest / worked)

    def _show(self, job: Job, note: str) -> None:
        if self._bar:
            self._bar.update(self._task, completed=self._worked(), description=f"{self.line()}  {note}".rstrip())
        elif note and time.monotonic() - self._told >= PLAIN_SECONDS:
            self._told = time.monotonic()
            self.say(f"{job.title}  {note}  {self.line()}")
