"""Maps with a row a word: windows of convolutions, logits of models, attention of heads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posenc_jax.analysis.plots.style import DIVERGING, FONT, SEQUENTIAL, figure


def plot_windows(window_HxLxK: np.ndarray, words: Sequence[str]) -> Any:
    """The windows of a layer's convolution heads over one text: a panel a head, a row a word, a column a neighbour."""
    heads, length, slots = np.shape(window_HxLxK)
    made, axes = figure(1, heads, height=1.0 + 0.17 * length, sharey=True, squeeze=False)
    most, reach = float(np.max(window_HxLxK)), slots // 2
    extent = (-reach - 0.5, reach + 0.5, length - 0.5, -0.5)
    for head, (panel, window_LxK) in enumerate(zip(axes[0], window_HxLxK, strict=True)):
        image = panel.imshow(
            window_LxK, cmap=SEQUENTIAL, vmin=0, vmax=most, extent=extent, aspect="auto", interpolation="nearest"
        )
        panel.set_title(f"convolution head {head + 1}", fontsize=FONT)
        panel.set_xticks(range(-reach, reach + 1))
    axes[0, 0].set_yticks(range(length), words)
    made.supxlabel("neighbour, words before and after", fontsize=FONT)
    bar = made.colorbar(image, ax=list(axes[0]))
    bar.set_label("weight in the window", fontsize=FONT)
    bar.ax.tick_params(labelsize=FONT)
    return made


def plot_logits(maps: Mapping[str, np.ndarray], words: Sequence[str]) -> Any:
    """Logits [L, L] of one text under several models: a panel a model, each on a scale of its own around 0."""
    from matplotlib.colors import CenteredNorm

    columns = min(len(maps), 2)
    rows = -(-len(maps) // columns)
    made, axes = figure(rows, columns, height=0.6 + 2.7 * rows, sharex=True, sharey=True, squeeze=False)
    for panel, (name, map_LxL) in zip(axes.flat, maps.items(), strict=False):
        image = panel.imshow(map_LxL, cmap=DIVERGING, norm=CenteredNorm(0.0), interpolation="nearest")
        panel.set_title(name, fontsize=FONT)
        panel.set_xticks(range(len(words)), words, rotation=90)
        panel.set_yticks(range(len(words)), words)
        bar = made.colorbar(image, ax=panel, shrink=0.8)
        bar.ax.tick_params(labelsize=FONT)
    for empty in axes.flat[len(maps) :]:
        empty.set_axis_off()
    made.supxlabel("key", fontsize=FONT)
    made.supylabel("query (colour: logit)", fontsize=FONT)
    return made


def plot_head_maps(maps: Mapping[str, np.ndarray]) -> Any:
    """Attention [H, L, L] of one text, query by key, on one scale: a row of panels a model, in it a panel a head."""
    columns = max(len(map_HxLxL) for map_HxLxL in maps.values())
    made, axes = figure(
        len(maps), columns, height=0.5 + 6.6 / columns * len(maps), sharex=True, sharey=True, squeeze=False
    )
    most = max(float(np.max(map_HxLxL)) for map_HxLxL in maps.values())
    for row, (name, map_HxLxL) in zip(axes, maps.items(), strict=True):
        for head, panel in enumerate(row):
            if head >= len(map_HxLxL):
                panel.set_axis_off()
                continue
            image = panel.imshow(map_HxLxL[head], cmap=SEQUENTIAL, vmin=0, vmax=most, interpolation="nearest")
            panel.set_title(f"{name}, head {head + 1}", fontsize=FONT)
    made.supxlabel("slot of the key", fontsize=FONT)
    made.supylabel("slot of the query", fontsize=FONT)
    bar = made.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("attention", fontsize=FONT)
    bar.ax.tick_params(labelsize=FONT)
    return made
