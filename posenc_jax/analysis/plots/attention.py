"""Figures of attention: the four correlations of the input, measures by layer, how alike words and heads are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posenc_jax.analysis.attention_measures import Measure
from posenc_jax.analysis.input_correlations import FOUR
from posenc_jax.analysis.plots.style import COLOURS, DIVERGING, FONT, GREY, WIDTH, figure, layer_axis, legend

_TITLES = ("word to word", "word to position", "position to word", "position to position")


def plot_input_correlations(maps: Mapping[str, np.ndarray], words: Sequence[str] = ()) -> Any:
    """The four maps [L, L] of a head, or of heads or sentences averaged, on one scale with 0 in its middle (Ke et al.
    2021, fig. 2); the words of a single sentence name its rows and columns. NaN cells stay grey."""
    shown = [np.asarray(maps[name]) for name in FOUR]
    most = max(float(np.nanmax(np.abs(map_LxL))) for map_LxL in shown) or 1.0
    made, axes = figure(2, 2, height=6.0, sharex=True, sharey=True)
    for panel, title, map_LxL in zip(axes.flat, _TITLES, shown, strict=True):
        panel.set_facecolor("#DDDDDD")
        image = panel.imshow(map_LxL, cmap=DIVERGING, vmin=-most, vmax=most, interpolation="nearest")
        panel.set_title(f"{title}, deviation {np.nanstd(map_LxL):.2f}", fontsize=FONT)
        if words:
            places = range(len(words))
            panel.set_xticks(places, words, rotation=90)
            panel.set_yticks(places, words)
    made.supxlabel("word or position of the key", fontsize=FONT)
    made.supylabel("word or position of the query", fontsize=FONT)
    bar = made.colorbar(image, ax=axes, shrink=0.7)
    bar.set_label("part of the logit, first layer", fontsize=FONT)
    bar.ax.tick_params(labelsize=FONT)
    return made


def plot_by_layer(measures: Mapping[str, Measure], layers: Sequence[str]) -> Any:
    """A panel a measure, named by its key and unit ("mean distance (slots)"): dots each head, a line their mean, dashed
    uniform attention. `layers` are the names of the layers that attend, from "1" on."""
    count = len(measures)
    made, axes = figure(count, 1, width=WIDTH * 0.75, height=0.4 + 2.3 * count, sharex=True, squeeze=False)
    for panel, (label, measure) in zip(axes[:, 0], measures.items(), strict=True):
        place_E = np.arange(len(measure.value_ExH))
        panel.plot(place_E, measure.value_ExH, "o", color=COLOURS[5], markersize=3, clip_on=False)
        panel.plot([], [], "o", color=COLOURS[5], markersize=3, label="a head")
        panel.plot(place_E, measure.value_ExH.mean(1), color=COLOURS[0], marker="o", markersize=4, label="mean")
        panel.axhline(measure.uniform, color=GREY, linestyle="--", label="uniform attention")
        panel.set_ylabel(label)
        panel.set_ylim(0, None)
    legend(axes[0, 0])
    layer_axis(axes[-1, 0], layers)
    return made


def plot_similarities(words: Mapping[str, Mapping[str, float]], heads: Mapping[str, Mapping[str, float]]) -> Any:
    """Mean cosines of different words' last vectors, and of different heads' attention: a group of bars a form, a
    colour a run; `words[run][form]`. What TCD and HCD penalise (after Zhang et al. 2023)."""
    made, axes = figure(1, 2, height=3.0)
    for panel, title, values in zip(
        axes, ("different words (TCD)", "different heads (HCD)"), (words, heads), strict=True
    ):
        width = 0.8 / max(len(values), 1)
        for number, (run, by_form) in enumerate(values.items()):
            place = np.arange(len(by_form)) + (number - (len(values) - 1) / 2) * width
            bars = panel.bar(place, list(by_form.values()), width, color=COLOURS[number % len(COLOURS)], label=run)
            if len(values) <= 3:
                panel.bar_label(bars, fmt="%.2f", fontsize=8, padding=2, rotation=90)  # wider than a bar otherwise
            panel.set_xticks(range(len(by_form)), list(by_form))
        panel.axhline(0, color=GREY, linewidth=0.8)
        panel.set_title(title, fontsize=FONT)
        panel.set_xlabel("form of the cosine")
        panel.margins(y=0.25)
    axes[0].set_ylabel("mean cosine over pairs")
    legend(axes[1])
    return made


def plot_by_distance(layers: Mapping[str, Mapping[str, np.ndarray]], uniform_C: np.ndarray) -> Any:
    """Weight by distance [C], from -reach to reach: a panel a layer, named by its key, in it a line a head.

    "attention head 1" and "window, head 1" are names; of each kind of name, the words before its last one, lines have
    one colour. Dashed `uniform_C`, what uniform attention gives each distance.
    """
    reach = len(uniform_C) // 2
    distance_C = np.arange(-reach, reach + 1)
    made, axes = figure(1, len(layers), height=3.4, sharex=True, sharey=True, squeeze=False)
    kinds = list(dict.fromkeys(_kind(name) for heads in layers.values() for name in heads))
    styles = ("-", "--", ":", "-.")
    for panel, (title, heads) in zip(axes[0], layers.items(), strict=True):
        seen = dict.fromkeys(kinds, 0)
        for name, weight_C in heads.items():
            kind = _kind(name)
            style, colour = styles[seen[kind] % len(styles)], COLOURS[kinds.index(kind) % len(COLOURS)]
            panel.plot(distance_C, weight_C, style, color=colour, label=name, linewidth=1.3)
            seen[kind] += 1
        panel.plot(distance_C, uniform_C, color=GREY, linestyle=(0, (1, 1)), label="uniform attention")
        panel.set(title=title, xlabel="key minus query (slots)")
        panel.axvline(0, color=GREY, linewidth=0.5, zorder=0)
    axes[0, 0].set(ylabel="mean weight", ylim=(0, None))
    lines = {line.get_label(): line for panel in axes[0] for line in panel.lines if line.get_label()[0] != "_"}
    made.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=3, fontsize=FONT, frameon=False)
    return made


def _kind(name: str) -> str:
    return name.rpartition(" ")[0]
