"""Learning curves in numbers: when a run left its plateau, when it reached a level, how far seeds lie apart.

A curve is a list of (step, value), as `evaluation.runs.Run.curve` gives it. Symmetric attention was said to need half
the steps; that number rests on one interpolated crossing of one run (ddrp_mth_and_symmetric.md 2.6), so what is
returned here says what it rests on.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

Curve = Sequence[tuple[int, float]]


def plateau_exit(losses: Curve, loss: float) -> int | None:
    """The first evaluated step whose loss is `loss` or less; None where there is none. Nothing is interpolated.

    The plateau of masked language modelling is near what word frequencies alone tell: for a run whose unigram entropy
    is known, `plateau_exit(losses, entropy - 0.1)`. The run left some time after the evaluation before. That it left
    shows that it reads the words around: an encoder without positions passes this level, too.
    """
    steps_N, losses_N = _columns(losses)
    return next((int(step) for step, value in zip(steps_N, losses_N, strict=True) if value <= loss), None)


@dataclasses.dataclass(frozen=True)
class Crossing:
    """Where a piecewise linear curve meets a threshold."""

    step: float
    reached: bool
    """Whether it is reached here, or lost again."""
    after: int
    """The last evaluation before the crossing."""
    by: int
    """The first evaluation at or past it."""


@dataclasses.dataclass(frozen=True)
class Reached:
    """When a curve reached a threshold, and what that rests on."""

    threshold: float
    step: float | None
    """Of the first crossing, or the first evaluation where that is past the threshold already; None: never."""
    crossings: tuple[Crossing, ...]
    """All of them: a curve that is not monotone loses the threshold again."""
    without_one: tuple[float, float] | None
    """Least and most `step` when any one evaluation, other than the first and last, is left out (inf: never)."""
    caveats: tuple[str, ...]


def steps_to(curve: Curve, threshold: float, *, falling: bool) -> Reached:
    """Steps until a curve is at or past a threshold, between evaluations along a straight line.

    `falling` for losses, which reach it from above; not for scores. One evaluation that went wrong, such as a run that
    collapsed, may move the answer by thousands of steps: `without_one` says how far.
    """
    steps_N, values_N = _columns(curve)
    sign = -1.0 if falling else 1.0
    excess_N = sign * (values_N - threshold)
    crossings = _crossings(steps_N, excess_N)
    step = _first(steps_N, excess_N)
    others = [
        _first(np.delete(steps_N, left_out), np.delete(excess_N, left_out)) for left_out in range(1, len(steps_N) - 1)
    ]
    known = [np.inf if other is None else other for other in others]
    without_one = (min(known), max(known)) if known and step is not None else None
    caveats = _caveats(steps_N, values_N, excess_N, step, crossings, without_one)
    return Reached(threshold, step, crossings, without_one, caveats)


def _crossings(steps_N: np.ndarray, excess_N: np.ndarray) -> tuple[Crossing, ...]:
    found = []
    for before in np.flatnonzero((excess_N[:-1] >= 0) != (excess_N[1:] >= 0)):
        (low, high), (at_low, at_high) = steps_N[before : before + 2], excess_N[before : before + 2]
        step = low + (high - low) * at_low / (at_low - at_high)
        found.append(Crossing(float(step), bool(at_high >= 0), int(low), int(high)))
    return tuple(found)


def _first(steps_N: np.ndarray, excess_N: np.ndarray) -> float | None:
    if excess_N[0] >= 0:
        return float(steps_N[0])
    return next((crossing.step for crossing in _crossings(steps_N, excess_N)), None)


def _caveats(
    steps_N: np.ndarray,
    values_N: np.ndarray,
    excess_N: np.ndarray,
    step: float | None,
    crossings: Sequence[Crossing],
    without_one: tuple[float, float] | None,
) -> tuple[str, ...]:
    if step is None:
        best = int(excess_N.argmax())
        return (f"never reached in {steps_N[-1]:,.0f} steps; the best is {values_N[best]:.4g} at {steps_N[best]:,.0f}",)
    said = []
    if excess_N[0] >= 0:
        said.append(f"at or past it at the first evaluation already, step {steps_N[0]:,.0f}")
    elif crossings[0].after < step < crossings[0].by:
        said.append(f"interpolated between the evaluations at {crossings[0].after:,} and {crossings[0].by:,}")
    if any(not crossing.reached for crossing in crossings):
        places = ", ".join(f"{'reached' if one.reached else 'lost'} at {one.step:,.0f}" for one in crossings)
        said.append(f"not monotone: {places}; the first is given")
    if without_one and without_one[1] - without_one[0] > 0.05 * step:
        low, high = (f"{edge:,.0f}" if np.isfinite(edge) else "never" for edge in without_one)
        said.append(f"with one evaluation left out it is {low} to {high}")
    return tuple(said)


def steps_ratio(curve: Curve, reference: Curve, thresholds: Sequence[float], *, falling: bool) -> np.ndarray:
    """[T]: steps of `curve` over steps of `reference` to each threshold; NaN where either does not reach it.

    A single ratio depends on the threshold: give several.
    """
    found = [[steps_to(one, level, falling=falling).step for one in (curve, reference)] for level in thresholds]
    return np.array([np.nan if mine is None or not other else mine / other for mine, other in found])


@dataclasses.dataclass(frozen=True)
class SeedBand:
    """The curves of runs that differ by their seed."""

    step_S: np.ndarray
    """The steps at which all were evaluated."""
    median_S: np.ndarray
    low_S: np.ndarray
    high_S: np.ndarray
    """Least and most, not a confidence interval."""
    seeds: int


def seed_band(curves: Sequence[Curve]) -> SeedBand:
    """Median, least and most over curves. Raises `ValueError` where no step is common to all."""
    by_step: list[Mapping[int, float]] = [
        dict(zip(*map(np.ndarray.tolist, _columns(one)), strict=True)) for one in curves
    ]
    common = sorted(set.intersection(*map(set, by_step))) if by_step else []
    if not common:
        raise ValueError(f"{len(by_step)} curves have no step in common; a band wants the same evaluations")
    values_RxS = np.array([[one[step] for step in common] for one in by_step])
    median_S = np.median(values_RxS, axis=0)
    return SeedBand(np.array(common), median_S, values_RxS.min(0), values_RxS.max(0), len(by_step))


def _columns(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values in ascending order of the step; of a step that occurs twice, as after a restart, the last."""
    points = sorted(dict(curve).items())
    if not points:
        raise ValueError("a curve without points reaches nothing; leave it out")
    if wrong := [step for step, value in points if not np.isfinite(value)]:
        raise ValueError(f"a curve is not finite at step {wrong[0]}")
    steps, values = zip(*points, strict=True)
    return np.array(steps, np.float64), np.array(values, np.float64)
