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
    for number, (name, band) in enumerate(bands.items()):
        colour, dash = COLOURS[number % len(COLOURS)], _DASHES[number // len(COLOURS) % len(_DASHES)]
        label = f"{name} ({band.seeds} seed{'s' * (band.seeds > 1)})"
        if band.seeds > 1:
            axes.fill_between(band.step_S, band.low_S, band.high_S, color=colour, alpha=0.2, linewidth=0)
        axes.plot(band.step_S, band.median_S, dash, color=colour, linewidth=1.4, label=label)
        for threshold in thresholds:
            curve = list(zip(band.step_S.tolist(), band.median_S.tolist(), strict=True))
            if (step := steps_to(curve, threshold, falling=falling).step) is not None:
                axes.plot(step, threshold, "o", color=colour, markersize=5, markeredgecolor="white")
                axes.annotate(
                    f"{step:,.0f}",
                    (step, threshold),
                    xytext=(3, 4 + (FONT + 2) * number),
                    textcoords="offset points",
                    color=colour,
                    fontsize=FONT - 1,
                )
    for threshold in thresholds:
        axes.axhline(threshold, color=GREY, linestyle=":", linewidth=1)
    axes.set(xlabel="step", ylabel=what, title="median of the seeds, band: least to most")
    if all(band.seeds == 1 for band in bands.values()):
        axes.set_title("one seed each")
    if log:
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.set_ylim(*_limits(bands, thresholds))
    legend(axes)
    return made


def _limits(bands: Mapping[str, SeedBand], thresholds: Sequence[float]) -> tuple[float, float]:
    edges = [np.ravel(one) for band in bands.values() for one in (band.low_S, band.high_S)]
    values = np.concatenate([*edges, np.array(thresholds, float)])
    margin = 0.05 * (np.ptp(values) or 1)
    return values.min() - margin, values.max() + margin
