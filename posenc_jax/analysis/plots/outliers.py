"""Figures of outlier dimensions. Shape letters: E layers, D width."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from posenc_jax.analysis.plots.style import COLOURS, FONT, GREY, WIDTH, figure, layer_axis, legend

COLUMNS = 3
"""Panels beside each other."""


def plot_mean_vectors(mean_ExD: np.ndarray, layers: Sequence[str], outliers: Sequence[int] = ()) -> Any:
    """The mean vector of each layer, value against dimension, a panel a layer; `outliers` in colour, with their
    number where they stand out (Luo et al. 2021, fig. 1 to 4). Each panel has its own scale: with LayerNorm before
    the blocks values grow from layer to layer."""
    rows = -(-len(mean_ExD) // COLUMNS)
    made, axes = figure(rows, COLUMNS, width=WIDTH, height=0.7 + 1.35 * rows, sharex=True, squeeze=False)
    dims_D = np.arange(mean_ExD.shape[1])
    for number, panel in enumerate(axes.flat):
        if number >= len(mean_ExD):
            panel.set_visible(False)
            continue
        mean_D = mean_ExD[number]
        panel.plot(dims_D, mean_D, color=GREY, linewidth=0.7)
        others = np.abs(np.delete(mean_D, list(outliers))).max()
        for colour, dim in zip(_cycle(outliers), outliers, strict=True):
            panel.vlines(dim, 0, mean_D[dim], color=colour, linewidth=1.4)
            if abs(mean_D[dim]) <= 1.5 * others:  # its number would lie on the others
                continue
            left = dim > mean_ExD.shape[1] / 2
            panel.annotate(
                str(dim),
                (dim, mean_D[dim]),
                (-3 if left else 3, 0),
                textcoords="offset points",
                color=colour,
                fontsize=FONT,
                ha="right" if left else "left",
                va="center",
            )
        panel.set_title(f"layer {layers[number]}", fontsize=FONT)
        panel.margins(y=0.15)  # room for the numbers
    for panel in axes.flat:
        panel.xaxis.set_tick_params(labelbottom=True)
    made.suptitle("each layer on a scale of its own (0 = embedding output)", fontsize=FONT)
    made.supxlabel("dimension", fontsize=FONT)
    made.supylabel("mean value over tokens", fontsize=FONT)
    return made


def plot_outlier_trajectory(mean_ExD: np.ndarray, dims: Sequence[int], layers: Sequence[str]) -> Any:
    """The mean value of some dimensions in every layer, before the range of all the others (positional_artefacts.md
    3.4)."""
    made, axes = figure(width=WIDTH)
    places_E = np.arange(len(mean_ExD))
    others = np.delete(mean_ExD, list(dims), axis=1)
    axes.fill_between(places_E, others.min(1), others.max(1), color=GREY, alpha=0.35, label="all other dimensions")
    for number, (colour, dim) in enumerate(zip(_cycle(dims), dims, strict=True)):
        style = ("-", "--", ":")[number // len(COLOURS) % 3]
        axes.plot(places_E, mean_ExD[:, dim], style, color=colour, marker="o", markersize=3, label=f"dimension {dim}")
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set(ylabel="mean value over tokens")
    layer_axis(axes, layers)
    legend(axes, loc="upper left", bbox_to_anchor=(1.01, 1))
    return made


def _cycle(dims: Sequence[int]) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(len(dims))]
