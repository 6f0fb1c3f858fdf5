"""The largest batch that fits, in few compilations."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from posenc_jax.evaluation.preflight.answer import GIB, Say
from posenc_jax.evaluation.preflight.process import Ask, Question

MOST_ROWS = 2**20
"""A batch of more is not asked for."""
_TRIES = 8


def largest_batch(ask: Ask, question: Question, known: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Rows of the largest batch that fits, a multiple of what the mesh and train.accumulate allow, 0 where none does.

    Memory grows nearly as a straight line with the rows, so estimates (`memory_only`) close in on the answer; then
    the program itself is compiled, down to one that fits. `known`: the answer for the batch of the question. Returns
    {"rows", "needed", "tried"}.
    """
    mesh = known["mesh"]
    unit = mesh["data"] * mesh["fsdp"] * question.config.train.accumulate
    tried: list[dict[str, Any]] = []

    def try_(units: int, memory_only: bool) -> dict[str, Any]:
        train = dataclasses.replace(question.config.train, batch_size=units * unit)
        config = dataclasses.replace(question.config, train=train)
        facts = ask(dataclasses.replace(question, config=config, memory_only=memory_only))
        one = {"rows": units * unit, "needed": facts["needed"], "fits": facts["fits"], "estimate": memory_only}
        tried.append(one)
        kind = "about " if memory_only else ""
        say(f"{one['rows']} rows: {kind}{one['needed'] / GIB:.2f} GiB, {'fits' if one['fits'] else 'does not fit'}")
        return one

    available = known["memory"]["available"]
    best = _estimate(lambda units: try_(units, True)["needed"], known["rows"] // unit, available, MOST_ROWS // unit)
    found = None
    while best > 0 and found is None and len(tried) < 2 * _TRIES:
        if known["fits"] and best * unit == known["rows"]:
            found = {"rows": known["rows"], "needed": known["memory"]["needed"]}
        elif (one := try_(best, False))["fits"]:
            found = {"rows": one["rows"], "needed": one["needed"]}
        best -= 1
    return {**(found or {"rows": 0, "needed": None}), "tried": tried}


def _estimate(needed: Callable[[int], int], start: int, available: int, most: int) -> int:
    """The largest number from 0 to `most` at which `needed`, which grows, is at most `available`, by secants."""
    low, high, points = 0, most + 1, [(0, 0)]
    guess = max(1, min(start, most))
    for _ in range(_TRIES):
        points.append((guess, needed(guess)))
        if points[-1][1] <= available:
            low = guess
        else:
            high = guess
        if high - low <= 1:
            break
        measured = points[1:] if len(points) > 2 else points  # the first line goes through the origin
        (here, value), (there, other) = sorted(measured, key=lambda point: abs(point[1] - available))[:2]
        slope = (value - other) / (here - there)
        guess = here + math.floor((available - value) / slope) if slope > 0 else (low + high) // 2
        guess = min(max(guess, low + 1), high - 1)
    return low
