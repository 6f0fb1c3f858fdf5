"""A trace of some steps, for TensorBoard's profile page or Perfetto."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from posenc_jax.errors import UsageError
from posenc_jax.parallel.distributed import is_first

FOLDER = "profile"


def parse_steps(text: str) -> range:
    """ "steps=10..13" -> the steps 10, 11, 12 and 13, counted from 1. Raises `UsageError` for anything else."""
    found = re.fullmatch(r"steps=(\d+)(?:\.\.(\d+))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if first < 1 or last < first:
        raise UsageError(f"--profile {text} names no steps; write --profile steps=10..13")
    return range(first, last + 1)


@contextlib.contextmanager
def profiled(train_step: Callable, steps: range, first: int, folder: Path) -> Iterator[Callable]:
    """Gives `train_step` back, and writes a trace of `steps` into `folder` while it is called for them.

    `first` updates are done before the first call; no steps, no trace. The device is idle when the trace begins and
    when it ends, so that it holds these steps whole; a run that ends in their midst leaves those that were done.
    """
    if steps and steps[-1] <= first and is_first():
        print(f"no trace is written: step {steps[-1]} is past, this run stands at step {first}", file=sys.stderr)
    number, running = first, False

    def step(state: Any, batch: Any) -> Any:
        nonlocal number, running
        number += 1
        if number in steps and not running:
            jax.block_until_ready(state)
            jax.profiler.start_trace(str(folder))
            running = True
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            done = train_step(state, batch)
        if running and number == steps[-1]:
            jax.block_until_ready(done)
            jax.profiler.stop_trace()
            running = False
        return done

    try:
        yield step
    finally:
        if running:
            jax.profiler.stop_trace()
