"""Figures of the position probe. Shape letters: E layers, P positions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posenc_jax.analysis.plots.style import COLOURS, FONT, GREY, SEQUENTIAL, WIDTH, figure, layer_axis, legend
from posenc_jax.analysis.position_probe import Accuracy


def plot_probe_accuracy(by_layer: Sequence[Accuracy], layers: Sequence[str]) -> Any:
    """How well a linear probe tells the position, over layers: of all tokens, mean over positions, best constant answer
    (Luo et al. 2021, fig. 5a, without the last two)."""
    made, axes = figure(width=WIDTH)
    lines = (("accuracy", "all tokens", "-"), ("macro", "mean over positions", "--"))
    for colour, (field, label, style) in zip(COLOURS, lines, strict=False):
        values = [100 * getattr(one, field) for one in by_layer]
        axes.plot(values, style, color=colour, marker="o", markersize=3, label=label)
    majority = [100 * one.majority for one in by_layer]
    axes.plot(majority, ":", color=GREY, label="always the most frequent position")
    axes.set(ylabel="probe accuracy (%)", ylim=(0, 103))
    layer_axis(axes, layers)
    legend(axes, loc="upper left", bbox_to_anchor=(1.01, 1))
    return made


def plot_contributions(lines: Mapping[str, np.ndarray], layers: Sequence[str]) -> Any:
    """Contributions [E] over layers, a line each: some dimensions, and the mean of all (Luo et al. 2021, fig. 5).
    "dimension 7, centred" is dashed in the colour of "dimension 7"."""
    made, axes = figure(width=WIDTH)
    names = list(dict.fromkeys(label.removesuffix(", centred") for label in lines))
    for label, values_E in lines.items():
        name = label.removesuffix(", centred")
        colour, style = COLOURS[names.index(name) % len(COLOURS)], "-" if label == name else "--"
        axes.plot(values_E, style, color=colour, marker="o", markersize=3, label=label)
    axes.set(ylabel="contribution, mean |w v|", ylim=(0, None))
    layer_axis(axes, layers)
    legend(axes, loc="upper left", bbox_to_anchor=(1.01, 1))  # beside the lines, which may be anywhere
    return made


def plot_contribution_heatmaps(maps: Mapping[str, np.ndarray], layers: Sequence[str], seen: int | None = None) -> Any:
    """Contributions [E, P] for each position, one map a dimension on one scale (Luo et al. 2021, fig. 11 and 12).
    Positions from `seen` on had no token."""
    count = len(maps)
    made, axes = figure(count, 1, height=0.6 + 2.1 * count, sharex=True, squeeze=False)
    most = max(float(np.max(map_ExP)) for map_ExP in maps.values())
    for panel, (title, map_ExP) in zip(axes[:, 0], maps.items(), strict=True):
        image = panel.imshow(
            map_ExP, aspect="auto", origin="lower", cmap=SEQUENTIAL, vmin=0, vmax=most, interpolation="nearest"
        )
        panel.set_title(title, fontsize=FONT)
        layer_axis(panel, layers, "y")
        if seen is not None:
            panel.axvline(seen - 0.5, color="white", linestyle="--", linewidth=1)
    end = "" if seen is None else "; dashed: end of the positions that tokens had"
    axes[-1, 0].set(xlabel=f"position in the sentence (0 = [CLS]){end}")
    bar = made.colorbar(image, ax=list(axes[:, 0]))
    bar.set_label("contribution, mean |w v|", fontsize=FONT)
    bar.ax.tick_params(labelsize=FONT)
    return made
