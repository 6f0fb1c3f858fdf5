"""Geometry by layer: Luo et al.'s figures 4 to 6, raw and clipped in one, and explained variance."""

from collections.abc import Mapping, Sequence
from typing import Any

from posenc_jax.analysis.geometry import Geometry
from posenc_jax.analysis.plots.style import COLOURS, FONT, LAYER, figure, layer_axis, legend

_MARKS = "os^Dv"


def plot_geometry(variants: Mapping[str, Geometry], layers: Sequence[str]) -> Any:
    """Three panels by layer, a line a variant ("raw", "clipped"): anisotropy with two standard errors, self-similarity
    as it is, and less its variant's own anisotropy.

    Raw self-similarity falls when an outlier is clipped, the adjusted rises: both are shown.
    """
    made, panels = figure(1, 3, height=3.0, sharex=True)
    for number, (name, geometry) in enumerate(variants.items()):
        style = {"color": COLOURS[number], "marker": _MARKS[number % len(_MARKS)], "markersize": 3.5, "linewidth": 1.2}
        between = geometry.anisotropy
        low_E, high_E = between.mean_E - 2 * between.error_E, between.mean_E + 2 * between.error_E
        panels[0].fill_between(range(len(layers)), low_E, high_E, color=COLOURS[number], alpha=0.2, linewidth=0)
        for axes, values_E in zip(
            panels, (between.mean_E, geometry.self_similarity_E, geometry.adjusted_E), strict=True
        ):
            axes.plot(range(len(layers)), values_E, label=name, **style)
    any_one = next(iter(variants.values()))
    titles = (
        f"anisotropy\n({any_one.anisotropy.count:,} pairs, band: 2 s.e.)",
        f"self-similarity, raw\n({any_one.words:,} words)",
        "self-similarity\nless anisotropy",
    )
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
        _cosine_axis(axes, layers)
        axes.set(xlabel=LAYER.replace(" (", "\n("), xticks=axes.get_xticks()[:: 2 if len(layers) > 8 else 1])
    panels[0].set_ylabel("mean cosine")
    lines = panels[0].lines  # below the panels: a name may be a list of dimensions
    made.legend(lines, list(variants), loc="outside lower center", ncols=2, fontsize=FONT, frameon=False)
    return made


def plot_mev(variants: Mapping[str, Geometry], layers: Sequence[str]) -> Any:
    """Mean share of a word's variance that its first principal component explains, by layer (Ethayarajh 2019)."""
    made, axes = figure(width=4.0, height=2.7)
    for number, (name, geometry) in enumerate(variants.items()):
        mark = _MARKS[number % len(_MARKS)]
        axes.plot(range(len(layers)), geometry.mev_E, marker=mark, markersize=3.5, color=COLOURS[number], label=name)
    axes.set_title(f"maximum explainable variance ({next(iter(variants.values())).words:,} words)")
    axes.set_ylabel("share of the first component")
    _cosine_axis(axes, layers)
    legend(axes)
    return made


def _cosine_axis(axes: Any, layers: Sequence[str]) -> None:
    layer_axis(axes, layers)
    axes.set_ylim(min(0, 1.1 * axes.dataLim.y0), 1)
    axes.grid(axis="y", alpha=0.3, linewidth=0.6)
