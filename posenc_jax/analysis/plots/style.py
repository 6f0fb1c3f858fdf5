"""What all figures share: sizes that print legibly, colours that colour-blind people tell apart, the axis of layers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, those that show on white first; after the last, change the line style."""
GREY = "#8C8C8C"
"""For what stands behind: baselines, everything that is not an outlier."""
SEQUENTIAL, DIVERGING = "cividis", "RdBu_r"
"""Colour maps: of amounts, and of signed values with white at 0."""
LAYER = "layer (0 = embedding output)"
FONT = 9
"""Points, at the figure's own size."""
WIDTH = 6.5
"""Inches: the text of a page."""


def figure(rows: int = 1, columns: int = 1, *, width: float = WIDTH, height: float = 3.2, **options: Any) -> tuple:
    """A `Figure` of width x height inches and its axes (`Figure.subplots`, its `options`), outside pyplot's state."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sizes = {f"{kind}.labelsize": FONT for kind in ("axes", "xtick", "ytick")}
    settings = {"font.size": FONT, "axes.titlesize": FONT + 1, **sizes}
    settings |= {"axes.spines.top": False, "axes.spines.right": False}
    with rc_context(settings):
        made = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(made)
        return made, made.subplots(rows, columns, **options)


def layer_axis(axes: Any, layers: Sequence[str], which: str = "x") -> None:
    """Ticks and label for layers at 0, 1, 2, ...; of many, every second, third, ... has its name."""
    step = -(-len(layers) // 16)
    places = range(0, len(layers), step)
    axes.set(**{f"{which}ticks": list(places), f"{which}ticklabels": [layers[place] for place in places]})
    axes.set(**{f"{which}label": LAYER})


def legend(axes: Any, **options: Any) -> None:
    """The legend of an axes, without a frame."""
    axes.legend(fontsize=FONT, frameon=False, **options)


def save(figure: Any, path: str | Path) -> Path:
    """Writes a figure, whole or not at all; the kind is that of the suffix (.png, .pdf, .svg)."""
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    figure.savefig(part, dpi=200, format=path.suffix[1:] or "png")
    part.replace(path)
    return path
