"""Runs side by side: what was trained, how far it came, what it scores, as tables and loss curves."""

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc_jax.config import config_diff
from posenc_jax.evaluation.curves import CURVES_FILE, draw_curves
from posenc_jax.evaluation.glue.picture import SCORES_PICTURE, draw_scores
from posenc_jax.evaluation.glue.scores import Record
from posenc_jax.evaluation.glue.tables import score_notes, score_sections
from posenc_jax.evaluation.objective_tables import objective_tables
from posenc_jax.evaluation.runs import Run
from posenc_jax.evaluation.tables import NOTHING, REPORT_FILE, Table, write_sections
from posenc_jax.evaluation.task_tables import task_tables

COLUMNS = (
    "run", "variant", "parameters", "steps", "seed", "validation loss", "unigram entropy", "below", "tokens/s", "time"
)  # fmt: skip


# ---- pre-training -------------------------------------------------------------------------------------------------


def training_table(runs: Sequence[Run]) -> Table:
    """A line a run, and a line for each group of finished runs that differ by their seed only."""
    lines = [_cells(run) for run in runs]
    for group in _groups(runs):
        lines.append(_group_cells(group))
    return Table(_caption(runs), COLUMNS, lines, numbers=COLUMNS[2:])


def _caption(runs: Sequence[Run]) -> str:
    rows = Counter(run.config.train.eval_rows for run in runs)
    sentences = [
        "Validation loss: nats a masked word (of the generator, where replaced words are detected), mean over the "
        "masked words of "
        f"{next(iter(rows)) if len(rows) == 1 else 'the first'} held-out rows (all where there are fewer), the same "
        "masks for every run and step, last parameters. Unigram entropy: nats a word of the held-out text for whoever "
        "knows how frequent each word is and no more; below: by how much the loss is less. "
        "tokens/s: median over the logged windows. One seed a line; lines of several seeds give the median and (least "
        "to most)."
    ]
    if len({run.unigram_entropy for run in runs} - {None}) > 1:
        sentences.append("These runs were validated on different rows: compare each with its own unigram entropy.")
    return " ".join(sentences)


def _cells(run: Run) -> tuple[str, ...]:
    summary = run.summary
    steps = f"{run.step:,}" if summary else f"{run.step:,} of {_whole(run.config.train.steps)}, not finished"
    steps = f"imported {run.imported}" if run.imported else steps
    return (
        run.name,
        run.variant,
        _whole(summary.get("parameters")),
        steps,
        str(run.config.train.seed),
        _nats(run.validation_loss),
        _nats(run.unigram_entropy),
        _nats(_below(run)),
        _whole(run.tokens_per_second),
        duration(summary["seconds"]) if summary else NOTHING,
    )


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    groups: list[list[Run]] = []
    for run in runs:
        if run.summary:
            group = next((group for group in groups if _differ_by_seed_only(group[0], run)), None)
            groups.append([run]) if group is None else group.append(run)
    return [group for group in groups if len(group) > 1]


def _differ_by_seed_only(one: Run, other: Run) -> bool:
    differing = {line.partition(":")[0] for line in config_diff(one.config, other.config)}
    return differing == {"train.seed"} and one.unigram_entropy == other.unigram_entropy


def _group_cells(runs: Sequence[Run]) -> tuple[str, ...]:
    runs = sorted(runs, key=lambda run: run.config.train.seed)
    first = runs[0]
    return (
        f"{len(runs)} seeds",
        first.variant,
        _whole(first.summary["parameters"]),
        f"{first.step:,}",
        " ".join(str(run.config.train.seed) for run in runs),
        _spread([run.validation_loss for run in runs]),
        _nats(first.unigram_entropy),
        _spread([_below(run) for run in runs]),
        _whole(statistics.median(run.tokens_per_second or 0 for run in runs)),
        duration(statistics.median(run.summary["seconds"] for run in runs)),
    )


def _below(run: Run) -> float | None:
    if run.validation_loss is None or run.unigram_entropy is None:
        return None
    return run.unigram_entropy - run.validation_loss


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING
    return f"{statistics.median(known):.3f} ({min(known):.3f} to {max(known):.3f})"


def _nats(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def _whole(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value or NOTHING)


def duration(seconds: float) -> str:
    """As "43 s", "2 min 31 s" or "5 h 02 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# ---- the whole ----------------------------------------------------------------------------------------------------


def write_report(runs: Sequence[Run], out: str | Path) -> Path:
    """Writes OUT/report.md and its pictures; returns the former. Its sections are "Pre-training" and, where any run
    has scores, "Fine-tuning" and "Other tasks"; those that `sts`, `wic` and `squad` keep in that file stay."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    training = [table.markdown() for table in (training_table(runs), *objective_tables(runs))]
    if draw_curves(runs, out / CURVES_FILE):
        training.append(f"![loss curves]({CURVES_FILE})")
    sections = {"Pre-training": "\n\n".join(training)}
    if scored := fine_tunings(runs):
        lines = [f"- {note}" for note in score_notes(scored)]
        parts = [table.markdown() for table in score_sections(scored)] + (["\n".join(lines)] if lines else [])
        if draw_scores(scored, out / SCORES_PICTURE):
            parts.append(f"![scores]({SCORES_PICTURE})")
        sections["Fine-tuning"] = "\n\n".join(parts)
    if others := task_tables(runs):
        sections["Other tasks"] = "\n\n".join(table.markdown() for table in others)
    write_sections(out / REPORT_FILE, sections)
    return out / REPORT_FILE


def print_report(runs: Sequence[Run]) -> None:
    """The same tables on the terminal."""
    for table in (training_table(runs), *objective_tables(runs)):
        table.show()
    if scored := fine_tunings(runs):
        for table in score_sections(scored):
            table.show()
        for note in score_notes(scored):
            print(note)
    for table in task_tables(runs):
        table.show()


def fine_tunings(runs: Sequence[Run]) -> dict[str, Sequence[Record]]:
    """The fine-tunings of each run, by its name; empty where no run has any."""
    return {run.name: run.scores for run in runs} if any(run.scores for run in runs) else {}
