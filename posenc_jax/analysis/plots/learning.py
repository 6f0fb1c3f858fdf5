"""Learning curves with the range of their seeds, and where they reach a threshold."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posenc_jax.analysis.learning import SeedBand, steps_to
from posenc_jax.analysis.plots.style import COLOURS, FONT, GREY, figure, legend

_DASHES = ("-", "--", ":")


def plot_learning(
    bands: Mapping[str, SeedBand],
    what: str,
    thresholds: Sequence[float] = (),
    *,
    falling: bool = True,
    log: bool = False,
) -> Any:
    """The median of each arm's seeds over steps, their range from least to most as a band; a mark where the median
    first reaches each threshold, with its step.

    `what` names the value and its unit, as "validation loss, nats a masked word". `falling` for losses, not for
    scores. `log` draws steps on a logarithmic axis. Of one seed there is no band.
    """
    made, axes = figure(height=3.4)
    alone = all(band.seeds == 1 for band in bands.values())
    marks: dict[float, list[tuple[float, str]]] = {}
    for number, (name, band) in enumerate(bands.items()):
        colour, dash = COLOURS[number % len(COLOURS)], _DASHES[number // len(COLOURS) % len(_DASHES)]
        label = name if alone else f"{name} ({band.seeds} seed{'s' * (band.seeds > 1)})"
        if band.seeds > 1:
            axes.fill_between(band.step_S, band.low_S, band.high_S, color=colour, alpha=0.2, linewidth=0)
        axes.plot(band.step_S, band.median_S, dash, color=colour, linewidth=1.4, label=label)
        for threshold in thresholds:
            curve = list(zip(band.step_S.tolist(), band.median_S.tolist(), strict=True))
            if (step := steps_to(curve, threshold, falling=falling).step) is not None:
                axes.plot(step, threshold, "o", color=colour, markersize=5, markeredgecolor="white")
                marks.setdefault(threshold, []).append((step, colour))
    for threshold in thresholds:
        axes.axhline(threshold, color=GREY, linestyle=":", linewidth=1)
    axes.set(xlabel="step", ylabel=what, title="median of the seeds, band: least to most")
    if alone:
        axes.set_title("one seed each" if len(bands) > 1 else "one seed")
    if log:
        axes.set_xscale("log")
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.set_ylim(*_limits(bands, thresholds))
    legend(axes)
    for threshold, points in marks.items():
        _label_marks(axes, threshold, sorted(points), falling)
    return made


def _label_marks(axes: Any, threshold: float, points: Sequence[tuple[float, str]], falling: bool) -> None:
    """The steps at which curves reach a threshold, in their colours. Those of dots that lie close together are one row
    beside the last dot, where all these curves have gone by; at the right edge beside the first."""
    from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea

    rows: list[list[tuple[float, str]]] = []
    for step, colour in points:
        if rows and _place(axes, step) - _place(axes, rows[-1][-1][0]) < sum(_width(one) for one, _ in rows[-1]):
            rows[-1].append((step, colour))
        else:
            rows.append([(step, colour)])
    for row in rows:
        words = [TextArea(f"{step:,.0f}", textprops={"color": colour, "fontsize": FONT - 1}) for step, colour in row]
        right = _place(axes, row[-1][0]) + sum(_width(step) for step, _ in row) < 1
        side = 1 if right else -1
        above = side if falling else -side
        label = AnnotationBbox(
            HPacker(children=words, pad=0, sep=4),
            (row[-1 if right else 0][0], threshold),
            xybox=(5 * side, 4 * above),
            boxcoords="offset points",
            box_alignment=(0 if right else 1, 0 if above > 0 else 1),
            pad=0.1,
            bboxprops={"edgecolor": "none", "alpha": 0.7},
        )
        axes.add_artist(label)


def _place(axes: Any, step: float) -> float:
    """Of a step on the axis: 0 at its left end, 1 at its right."""
    return float((axes.transData + axes.transAxes.inverted()).transform((step, 0))[0])


def _width(step: float) -> float:
    """About what the words of a step take, as a share of the axis of a figure as narrow as a report's."""
    return 0.02 + 0.018 * len(f"{step:,.0f}")


def _limits(bands: Mapping[str, SeedBand], thresholds: Sequence[float]) -> tuple[float, float]:
    edges = [np.ravel(one) for band in bands.values() for one in (band.low_S, band.high_S)]
    values = np.concatenate([*edges, np.array(thresholds, float)])
    margin = 0.05 * (np.ptp(values) or 1)
    return values.min() - margin, values.max() + margin
