"""Tables of scores that say what a number is: metric, split, seeds, rate, and how they were put together."""

import statistics
from collections.abc import Mapping, Sequence

from posenc_jax.evaluation.glue.scores import Record
from posenc_jax.evaluation.glue.summary import Line, mean_lines, notes, summarise
from posenc_jax.evaluation.tables import NOTHING, Table

SPREAD = ("median", "mean", "std", "best")
SCORE_COLUMNS = ("each run", "majority", "rate", "start", "protocol", "dev rows", "seconds")


def score_table(records_of: Mapping[str, Sequence[Record]]) -> Table:
    """The scores of one run or of several, a column's lines together; runs are named where there are several."""
    lines = [(name, line) for name, records in records_of.items() for line in summarise(records)]
    columns = list(dict.fromkeys(line.column for _, line in lines))
    lines.sort(key=lambda pair: columns.index(pair[1].column))
    spread = SPREAD if any(len(line.runs) > 1 for _, line in lines) else ()
    rows = []
    for name, line in lines:
        values = dict(
            zip(SPREAD, _numbers(statistics.median(line.runs), line.mean, line.std, max(line.runs)), strict=True)
        )
        cells = {
            "run": name,
            "task": line.column,
            "metric": line.metric,
            "score": percent(line.score),
            **values,
            "each run": _each(line.runs),
            "majority": percent(line.majority),
            "rate": f"{line.rate:g}",
            "start": line.start,
            "protocol": _protocol(line),
            "dev rows": f"{line.rows:,}",
            "seconds": f"{line.seconds:.0f}",
        }
        rows.append(cells)
    shown = (*(["run"] if len(records_of) > 1 else []), "task", "metric", "score", *spread, *SCORE_COLUMNS)
    return Table(
        _caption([line for _, line in lines]),
        shown,
        [[cells[column] for column in shown] for cells in rows],
        numbers=("score", *SPREAD, "majority", "dev rows", "seconds"),
    )


def rate_table(records_of: Mapping[str, Sequence[Record]]) -> Table | None:
    """Every run of every learning rate, where a protocol tries several."""
    rows = []
    for name, records in records_of.items():
        for line in summarise(records):
            for rate, runs in line.rates.items() if len(line.rates) > 1 else ():
                aggregate = {"median": statistics.median, "mean": statistics.fmean}[line.aggregation](runs.values())
                mark = " (reported)" if rate == line.rate else ""
                rows.append((name, line.column, line.protocol, f"{rate:g}{mark}", percent(aggregate),
                             _each(list(runs.values()))))  # fmt: skip
    if not rows:
        return None
    names = ("run", "task", "protocol", "rate", "aggregate", "each run")
    start = 0 if len(records_of) > 1 else 1
    return Table(
        "All learning rates of the grid, x 100, seeds ascending.", names[start:], [row[start:] for row in rows],
        numbers=("aggregate",),
    )  # fmt: skip


def mean_table(records_of: Mapping[str, Sequence[Record]]) -> Table | None:
    """The named averages that can be had."""
    means = [(name, mean) for name, records in records_of.items() for mean in mean_lines(records)]
    means = [(name, mean) for name, mean in means if mean.value is not None]
    if not means:
        return None
    shown = (
        *(["run"] if len(records_of) > 1 else []),
        "average",
        "value",
        "std",
        "each seed",
        "start",
        "protocol",
        "of",
    )
    rows = [
        {
            "run": name,
            "average": mean.name + (" (the protocol's)" if mean.own else ""),
            "value": percent(mean.value),
            "std": _numbers(mean.std)[0],
            "each seed": _each(list(mean.seeds.values())),
            "start": mean.start,
            "protocol": mean.protocol,
            "of": mean.formula,
        }
        for name, mean in means
    ]
    return Table(
        "Averages x 100: value over the tasks' scores above, each already one number over its seeds; std and each seed "
        "of the averages of single seeds.",
        shown,
        [[cells[column] for column in shown] for cells in rows],
        numbers=("value", "std"),
    )


def score_sections(records_of: Mapping[str, Sequence[Record]]) -> list[Table]:
    """Scores, averages and grids, those that there are."""
    return [table for table in (score_table(records_of), mean_table(records_of), rate_table(records_of)) if table]


def score_notes(records_of: Mapping[str, Sequence[Record]]) -> list[str]:
    """What is out of the ordinary, and of an average that cannot be had what it lacks; with the run it concerns."""
    found = []
    for name, records in records_of.items():
        start = f"{name}, " if len(records_of) > 1 else ""
        found += [start + note for note in notes(records)]
        found += [
            f"{start}no average {mean.name!r} ({mean.protocol}): missing {', '.join(mean.missing)}"
            for mean in mean_lines(records)
            if mean.own and mean.value is None
        ]
    return list(dict.fromkeys(found))


def print_scores(records: Sequence[Record]) -> None:
    """Tables and notes of one run on the terminal."""
    for table in score_sections({"": records}):
        table.show()
    for note in score_notes({"": records}):
        print(note)


def _caption(lines: Sequence[Line]) -> str:
    how = sorted({line.aggregation for line in lines if len(line.runs) > 1})
    sentences = [
        "Scores x 100 on the whole dev set, last state of each run"
        + (f"; score: the {' or '.join(how)} over the seeds, as the protocol says." if how else ", one run each.")
    ]
    if any(len(line.rates) > 1 for line in lines):
        sentences.append("Of several learning rates the best on this dev set is reported, which flatters.")
    if how:
        sentences.append("std: of the sample (n - 1); each run: seeds ascending.")
    sentences.append("Majority: the same metric of the most frequent training label.")
    return " ".join(sentences)


def _protocol(line: Line) -> str:
    """The label, and where they are not the protocol's the seeds, and where they are not all the training rows."""
    seeds = len(line.runs)
    words = [line.protocol]
    words += [f"{seeds} seed{'s' * (seeds > 1)}"] * (seeds != line.planned[1])
    words += [f"{line.capped[0]:,} of {line.capped[1]:,} rows"] if line.capped else []
    return ", ".join(words)


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _numbers(*values: float | None) -> list[str]:
    return [NOTHING if value is None else percent(value) for value in values]


def _each(values: Sequence[float]) -> str:
    return " ".join(map(percent, values)) if len(values) > 1 else "1 seed"
