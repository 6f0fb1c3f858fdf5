"""How alike words and heads are: by layer, and heads beside how sharp they are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posenc_jax.analysis.plots.style import COLOURS, GREY, WIDTH, figure, layer_axis, legend

_MARKS = "os^Dv"


def plot_similarity_by_layer(lines: Mapping[str, np.ndarray], layers: Sequence[str]) -> Any:
    """A mean cosine [E] of each layer, a line a run."""
    made, axes = figure(width=WIDTH * 0.75)
    for number, (name, value_E) in enumerate(lines.items()):
        mark, colour = _MARKS[number % len(_MARKS)], COLOURS[number % len(COLOURS)]
        axes.plot(range(len(layers)), value_E, marker=mark, markersize=4, color=colour, label=name)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_ylabel("mean cosine over pairs")
    layer_axis(axes, layers)
    legend(axes)
    return made


def plot_likeness(
    curve: Sequence[tuple[float, float]], points: Mapping[str, tuple[float, float]], curve_name: str
) -> Any:
    """Heads' mean cosine over the entropy of their rows: (entropy, cosine) of runs as points, and a curve to judge them
    by, that of attention which was made sharper or flatter."""
    made, axes = figure(width=WIDTH * 0.75)
    entropy_N, cosine_N = np.array(sorted(curve)).T
    axes.plot(entropy_N, cosine_N, ".-", color=GREY, label=curve_name)
    for number, (name, (entropy, cosine)) in enumerate(points.items()):
        axes.plot(entropy, cosine, _MARKS[number % len(_MARKS)], color=COLOURS[number % len(COLOURS)], label=name)
    axes.set(xlabel="mean entropy of attention rows (nats)", ylabel="mean cosine of different heads")
    axes.margins(0.08)
    legend(axes, loc="upper left")
    return made
