"""The scores of fine-tunings, as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posenc_jax.evaluation.glue.scores import Record
from posenc_jax.evaluation.glue.summary import summarise

SCORES_PICTURE = "scores.png"


def draw_scores(records_of: Mapping[str, Sequence[Record]], path: Path) -> bool:
    """Writes `score_figure` as PNG; returns whether there was anything to draw."""
    figure = score_figure(records_of)
    if figure is None:
        return False
    part = path.with_name(f"{path.name}.part")
    figure.savefig(part, dpi=150, format="png")
    part.replace(path)
    return True


def score_figure(records_of: Mapping[str, Sequence[Record]]) -> Any | None:
    """A group of places a task, in it a place for each run, start and protocol: the score as a wide mark, every run at
    the reported rate as a point, the majority baseline as a dashed line through the group.

    A matplotlib `Figure`, or None where there is nothing to draw. Uses no display and leaves matplotlib's global state
    alone.
    """
    lines = [(name, line) for name, records in records_of.items() for line in summarise(records)]
    if not lines:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys((line.column, line.metric) for _, line in lines))
    series = list(dict.fromkeys((name, line.start, line.protocol) for name, line in lines))
    figure = Figure(figsize=(max(6.0, 1.3 * len(tasks) + 2), 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xlabel="task, and the metric of its score", ylabel="score on the dev set, x 100")
    for name, line in lines:
        kind = series.index((name, line.start, line.protocol))
        group = tasks.index((line.column, line.metric))
        place, colour = group + 0.8 * ((kind + 0.5) / len(series) - 0.5), f"C{kind % 10}"
        axes.plot(
            [place] * len(line.runs), [100 * run for run in line.runs], "o", color=colour, alpha=0.5, markersize=4
        )
        axes.plot(place, 100 * line.score, "_", color=colour, markersize=18, markeredgewidth=2)
        axes.plot([group - 0.4, group + 0.4], [100 * line.majority] * 2, "--", color="grey", linewidth=1)
    for kind, names in enumerate(series):
        axes.plot([], [], "o", color=f"C{kind % 10}", label=", ".join(filter(None, names)))
    axes.plot([], [], "--", color="grey", label="majority baseline")
    axes.set_xticks(range(len(tasks)), [f"{column}\n{metric}" for column, metric in tasks], fontsize=8)
    axes.grid(alpha=0.3, axis="y")
    axes.legend(frameon=False, fontsize=8)
    return figure
