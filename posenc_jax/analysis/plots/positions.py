"""Figures of positional maps. Shape letters: H heads, L positions, C distances (2 L - 1)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posenc_jax.analysis.patterns import Pattern, attention_of
from posenc_jax.analysis.plots.style import COLOURS, DIVERGING, FONT, GREY, SEQUENTIAL, WIDTH, figure

COLUMNS = 4
_FLOOR = 1e-9
"""Singular values below this share of the largest are rounding."""


def plot_position_maps(
    map_HxLxL: np.ndarray, patterns: Sequence[Pattern] = (), *, attention: bool = False, first: int = 0
) -> Any:
    """A panel a head, all on one scale: the map in units of logits, or its row-softmax (Ke et al. 2021, fig. 6), on a
    logarithmic scale from a tenth of uniform attention up.

    `patterns` name the panels. `first` is the position of the first row, 1 where [CLS] was left out.
    """
    from matplotlib.colors import CenteredNorm, LogNorm

    if attention:
        shown_HxLxL, colours, label = attention_of(map_HxLxL), SEQUENTIAL, "attention by position alone"
        scale = LogNorm(0.1 / shown_HxLxL.shape[-1], 1.0)
    else:
        shown_HxLxL, colours, label = np.asarray(map_HxLxL), DIVERGING, "logit of position alone"
        scale = CenteredNorm(0.0, float(np.abs(shown_HxLxL).max()) or 1.0)
    made, panels = _grid(len(shown_HxLxL), row_height=1.55, sharex=True, sharey=True)
    last = first + shown_HxLxL.shape[-1] - 1
    extent = (first - 0.5, last + 0.5, last + 0.5, first - 0.5)
    for head, (panel, map_LxL) in enumerate(zip(panels, shown_HxLxL, strict=True)):
        image = panel.imshow(map_LxL, cmap=colours, norm=scale, extent=extent, interpolation="nearest")
        panel.set_title(f"head {head + 1}{f': {patterns[head].label}' if patterns else ''}", fontsize=FONT)
        panel.set(xticks=(first, last), yticks=(first, last))
    made.supxlabel("position of the key", fontsize=FONT)
    made.supylabel("position of the query", fontsize=FONT)
    bar = made.colorbar(image, ax=list(panels), shrink=0.8, extend="min" if attention else "neither")
    bar.set_label(label, fontsize=FONT)
    bar.ax.yaxis.set_major_formatter("{x:g}")  # powers of ten would have exponents too small to print
    bar.ax.tick_params(labelsize=FONT)
    return made


def plot_scheme_maps(maps: Mapping[str, np.ndarray], *, first: int = 0) -> Any:
    """A map [L, L] a scheme, each on a scale of its own with white at 0: what it does, not how much of it. The end of
    the scale, in units of logits, stands in the title."""
    from matplotlib.colors import CenteredNorm

    made, panels = _grid(len(maps), row_height=1.65, sharex=True, sharey=True)
    for panel, (name, map_LxL) in zip(panels, maps.items(), strict=True):
        most, last = float(np.abs(map_LxL).max()), first + len(map_LxL) - 1
        extent = (first - 0.5, last + 0.5, last + 0.5, first - 0.5)
        panel.imshow(map_LxL, cmap=DIVERGING, norm=CenteredNorm(0.0, most or 1.0), extent=extent)
        panel.set_title(f"{name}\n\N{PLUS-MINUS SIGN}{most:.2g}", fontsize=FONT)
        panel.set(xticks=(first, last), yticks=(first, last))
    made.supxlabel("position of the key", fontsize=FONT)
    made.supylabel("position of the query", fontsize=FONT)
    return made


def plot_profiles(profile_HxC: np.ndarray, patterns: Sequence[Pattern] = (), *, reach: int | None = None) -> Any:
    """Mean attention by distance, a panel a head, out to `reach` positions, logarithmic from a hundredth of uniform
    attention up; dashed uniform attention."""
    longest = np.shape(profile_HxC)[1] // 2
    reach = longest if reach is None else min(reach, longest)
    distance_C, uniform = np.arange(-reach, reach + 1), 1 / (longest + 1)
    made, panels = _grid(len(profile_HxC), row_height=1.3, sharex=True, sharey=True)
    for head, (panel, profile_C) in enumerate(zip(panels, np.asarray(profile_HxC), strict=True)):
        panel.semilogy(distance_C, profile_C[longest - reach : longest + reach + 1], color=COLOURS[0], linewidth=1.2)
        panel.axhline(uniform, color=GREY, linestyle="--", linewidth=0.8)
        panel.axvline(0, color=GREY, linewidth=0.5)
        panel.set_title(f"head {head + 1}{f': {patterns[head].label}' if patterns else ''}", fontsize=FONT)
    panels[0].set(ylim=(uniform / 100, 1.5))
    panels[0].yaxis.set_major_formatter("{x:g}")
    made.supxlabel("distance, key minus query (positions); dashed: uniform attention", fontsize=FONT)
    made.supylabel("mean attention", fontsize=FONT)
    return made


def plot_spectra(spectra: Mapping[str, np.ndarray], head_width: int | None = None) -> Any:
    """Singular values [H, L] over their number, as a share of the largest: thin each head, thick their median, a colour
    a scheme; where a product of projected positions must end, at `head_width`, a dashed line."""
    made, axes = figure(width=WIDTH * 0.75, height=3.8)
    for number, (name, spectrum_HxL) in enumerate(spectra.items()):
        colour = COLOURS[number % len(COLOURS)]
        largest_Hx1 = np.max(spectrum_HxL, axis=1, keepdims=True)
        share_HxL = np.maximum(spectrum_HxL / np.where(largest_Hx1 > 0, largest_Hx1, 1.0), _FLOOR)
        place_L = np.arange(1, share_HxL.shape[1] + 1)
        for share_L in share_HxL:
            axes.semilogy(place_L, share_L, color=colour, linewidth=0.5, alpha=0.4)
        axes.semilogy(place_L, np.median(share_HxL, axis=0), color=colour, linewidth=1.8, label=name)
    if head_width is not None:
        axes.axvline(head_width, color=GREY, linestyle="--", label=f"head width {head_width}")
    axes.set(xlabel="number of the singular value", ylabel="singular value / largest", ylim=(_FLOOR / 2, 2))
    axes.yaxis.set_major_formatter("{x:g}")
    made.legend(loc="outside lower center", ncols=3, fontsize=FONT, frameon=False)
    return made


def _grid(count: int, row_height: float, **options: Any) -> tuple[Any, list[Any]]:
    """A figure with `count` panels, at most `COLUMNS` a row; places without a panel stay empty."""
    columns = min(count, COLUMNS)
    rows = -(-count // columns)
    width = min(WIDTH, 1.0 + 1.6 * columns)
    made, grid = figure(rows, columns, width=width, height=0.5 + row_height * rows, squeeze=False, **options)
    for empty in grid.flat[count:]:
        empty.set_axis_off()
    return made, list(grid.flat[:count])
