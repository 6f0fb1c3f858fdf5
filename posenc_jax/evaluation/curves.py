"""Loss curves of runs, as a picture."""

from collections.abc import Sequence
from pathlib import Path

from posenc_jax.evaluation.runs import Run

CURVES_FILE = "curves.png"


def draw_curves(runs: Sequence[Run], path: Path) -> bool:
    """Training loss (thin), validation loss (with marks) and unigram entropy (dashed) over steps, a colour a run.

    Returns whether there was anything to draw. Uses no display and leaves matplotlib's global state alone.
    """
    runs = [run for run in runs if run.curve("train") or run.curve("validation")]
    if not runs:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xlabel="step", ylabel="loss, nats a masked word")
    for number, run in enumerate(runs):
        colour = f"C{number % 10}"
        axes.plot(*_columns(run.curve("train")), color=colour, linewidth=0.8, alpha=0.5)
        axes.plot(*_columns(run.curve("validation")), color=colour, marker="o", markersize=4, label=run.name)
    for entropy in sorted({run.unigram_entropy for run in runs if run.unigram_entropy is not None}):
        axes.axhline(entropy, color="grey", linestyle="--", label=f"unigram entropy {entropy:.2f}")
    axes.set_title("Validation (marks) and training (thin) loss")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    part = path.with_name(f"{path.name}.part")
    figure.savefig(part, dpi=150, format="png")
    part.replace(path)
    return True


def _columns(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [step for step, _ in points], [loss for _, loss in points]
