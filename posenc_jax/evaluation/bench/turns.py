"""Sides that take turns: each is a process of its own that idles between its turns, so that no thread pool disturbs
another's measurement."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from posenc_jax.errors import UserError

PAUSE_SECONDS = 0.5  # until the threads of the last turn have gone to sleep
WARM_UP = 2

Run = Callable[[int], None]
"""Does so many pieces of work and returns when they are done."""
Side = tuple[Callable[..., tuple[Run, str]], tuple]
"""A module's function, called in the side's process with the arguments beside it: its `Run`, and what it runs on."""


def take_turns(
    sides: Mapping[str, Side], rounds: int, count: int | Mapping[str, int], say: Callable[[str, float], Any]
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds that each side takes for `count` pieces of work, one for each round, and what it runs on.

    `count` may differ from side to side. In each round another side begins. Each turn starts with a piece that is not
    counted. `say` is told of every turn. Raises `UserError` with a side's own words when it fails.
    """
    counts = {side: count if isinstance(count, int) else count[side] for side in sides}
    with processes(sides) as connections:
        devices = {side: answer(side, connection) for side, connection in connections.items()}
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        names = list(sides)
        for number in range(rounds):
            for side in names[number % len(names) :] + names[: number % len(names)]:
                time.sleep(PAUSE_SECONDS)
                connections[side].send(counts[side])
                seconds[side].append(answer(side, connections[side]))
                say(f"round {number + 1}: {side}", seconds[side][-1])
    return seconds, devices


def threads() -> int:
    """That a side may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def processes(sides: Mapping[str, Side]) -> Iterator[dict[str, Connection]]:
    """Starts a process a side, one after the other until each is warm, and ends them."""
    context = get_context("spawn")
    connections, started = {}, []
    try:
        for side, (make, arguments) in sides.items():
            connections[side], theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
            process.start()
            theirs.close()
            started.append(process)
            connections[side].poll(None)
        yield connections
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()


def _serve(connection: Connection, make: Callable[..., tuple[Run, str]], arguments: tuple) -> None:
    try:
        run, device = make(*arguments)
        run(WARM_UP)
        connection.send(device)
        while True:
            count = connection.recv()
            run(1)  # the memory that idling gave back, and the caches, are this side's again
            began = time.perf_counter()
            run(count)
            connection.send(time.perf_counter() - began)
    except (EOFError, KeyboardInterrupt):
        return
    except Exception as error:
        connection.send(error if isinstance(error, UserError) else UserError(f"{type(error).__name__}: {error}"))


def answer(side: str, connection: Connection) -> Any:
    """What a side sends. Raises `UserError` where it failed or died."""
    try:
        sent = connection.recv()
    except EOFError:
        raise UserError(f"the process of {side} died, perhaps for want of memory; take a smaller --size") from None
    if isinstance(sent, UserError):
        raise UserError(f"{side} failed: {sent}")
    return sent
