"""A list of jobs worked off, in this process or in several: each once, a failed one once more.

Knows nothing of what a job is. Every process opens a bench, the costly thing that jobs share, and keeps it.
"""

import collections
import contextlib
import dataclasses
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from posenc_jax.errors import UserError

TELL_SECONDS = 0.5
"""Between two words of another process about the job it is at."""


@dataclasses.dataclass(frozen=True)
class Job:
    id: str
    title: str
    group: str
    """Jobs of one group share more than others, such as compiled steps: a process is given the same again."""
    work: float
    """In any unit, for the time left."""
    details: Any


Tell = Callable[[str, Job, Any], None]
"""Called with "begin", "step" (share of the job done, a note), "done" (its result), and of one that failed the reason
with "again" (it is tried once more) or "failed"."""


class Bench(Protocol):
    start: Any
    """What the jobs set out from."""

    def run(self, job: Job, on_step: Callable[[float, str], None]) -> Any:
        """Does a job and returns what came of it. A `UserError` is a failure that would happen again; an `OSError`, as
        of a full disk, would meet every other job too and ends them all."""
        ...


class Runner(Protocol):
    start: Any

    def run(self, jobs: Sequence[Job], tell: Tell) -> None: ...


@contextlib.contextmanager
def open_runner(open_bench: Callable[[], Bench], processes: int) -> Iterator[Runner]:
    """Works here for one process; else in `processes` new ones, while this one touches no device.

    With several, `open_bench` must be picklable. Leaving the block, however, ends them and what they were at.
    """
    if processes == 1:
        yield _Here(open_bench())
        return
    workers = _Workers(open_bench, processes)
    try:
        workers.wait_until_ready()
        yield workers
    finally:
        workers.close()


def _retried(attempt: int, again: bool) -> bool:
    return attempt == 1 and again


class _Here:
    def __init__(self, bench: Bench) -> None:
        self.start, self._bench = bench.start, bench

    def run(self, jobs: Sequence[Job], tell: Tell) -> None:
        queue = collections.deque((job, 1) for job in jobs)
        while queue:
            job, attempt = queue.popleft()
            tell("begin", job, None)
            try:
                result = self._bench.run(job, lambda share, note, job=job: tell("step", job, (share, note)))
            except OSError:
                raise
            except Exception as error:
                again, reason = _reason(error)
                if _retried(attempt, again):
                    queue.append((job, 2))
                tell("again" if _retried(attempt, again) else "failed", job, reason)
                continue
            tell("done", job, result)


def _reason(error: Exception) -> tuple[bool, str]:
    """Whether it may go better another time, and a sentence."""
    if isinstance(error, UserError):
        return False, str(error).partition(";")[0]
    lines = str(error).strip().splitlines()
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(where.filename)} line {where.lineno}"
    return True, f"{type(error).__name__}{f': {lines[0][:200]}' if lines else ''} ({place})"


@dataclasses.dataclass
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None
    attempt: int = 1
    group: str | None = None


class _Workers:
    def __init__(self, open_bench: Callable[[], Bench], processes: int) -> None:
        self._open_bench, self.start = open_bench, None
        # Each would take most of an accelerator's memory for itself.
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 / processes:.2f}")
        self._workers: list[_Worker] = []
        for _ in range(processes):
            self._workers.append(self._hire())

    def _hire(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self._open_bench, os.getpid()), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def wait_until_ready(self) -> None:
        for worker in self._workers:
            self._greet(worker)

    def _greet(self, worker: _Worker) -> None:
        try:
            kind, value = worker.pipe.recv()
        except EOFError:
            worker.process.join()
            raise UserError(
                f"a process for jobs ended before its first job ({_end(worker)}); run with fewer --jobs"
            ) from None
        if kind == "error":
            raise value
        if self.start not in (None, value):
            raise UserError(f"the weights changed from {self.start} to {value} between two jobs; run it again")
        self.start = value

    def run(self, jobs: Sequence[Job], tell: Tell) -> None:
        queue = [(job, 1) for job in jobs]
        while queue or any(worker.job for worker in self._workers):
            for worker in self._workers:
                if queue and worker.job is None:
                    self._assign(worker, queue)
                    tell("begin", worker.job, None)
            busy = {worker.pipe: worker for worker in self._workers if worker.job}
            for pipe in wait(list(busy)):
                self._hear(busy[pipe], queue, tell)

    def _assign(self, worker: _Worker, queue: list[tuple[Job, int]]) -> None:
        """Gives the worker a job of its own group, else of a group that no other is at, else the first."""
        others = {other.group for other in self._workers if other is not worker}
        choice = min(queue, key=lambda item: (item[0].group != worker.group, item[0].group in others))
        queue.remove(choice)
        worker.job, worker.attempt = choice
        worker.group = worker.job.group
        with contextlib.suppress(BrokenPipeError):  # it has ended: `_hear` is told so
            worker.pipe.send(worker.job)

    def _hear(self, worker: _Worker, queue: list[tuple[Job, int]], tell: Tell) -> None:
        job, attempt = worker.job, worker.attempt
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join()
            kind, value = "failed", (True, f"its process ended ({_end(worker)})")
            self._workers.remove(worker)
            worker = self._hire()
            self._workers.append(worker)
            self._greet(worker)
        if kind == "step":
            tell("step", job, value)
            return
        worker.job = None
        if kind == "error":
            raise value
        if kind == "done":
            tell("done", job, value)
            return
        again, reason = value
        if _retried(attempt, again):
            queue.append((job, 2))
        tell("again" if _retried(attempt, again) else "failed", job, reason)

    def close(self) -> None:
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
            worker.pipe.close()


def _end(worker: _Worker) -> str:
    code = worker.process.exitcode
    return f"killed by {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"


def _work(pipe: Connection, open_bench: Callable[[], Bench], parent: int) -> None:
    """A worker's life: ends when its parent has ended, at the latest after the step at work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the parent's to answer

    told = 0.0

    def on_step(share: float, note: str) -> None:
        nonlocal told
        if os.getppid() != parent:
            os._exit(1)
        if note or time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            pipe.send(("step", (share, note)))

    try:
        bench = open_bench()
    except UserError as error:
        pipe.send(("error", error))
        return
    pipe.send(("ready", bench.start))
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            message = ("done", bench.run(job, on_step))
        except BrokenPipeError:  # the parent has ended
            return
        except OSError as error:
            message = ("error", error)
        except Exception as error:
            message = ("failed", _reason(error))
        pipe.send(message)
