"""Records to numbers: the runs of a task under one protocol as one score, and the averages over tasks."""

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from posenc_jax.evaluation.glue.averages import AVERAGES, averages
from posenc_jax.evaluation.glue.protocols import PROTOCOLS, Protocol
from posenc_jax.evaluation.glue.scores import Record


@dataclasses.dataclass(frozen=True)
class Line:
    """The runs of one results column under one protocol, from one encoder, on the same data."""

    task: str
    column: str
    metric: str
    """Of the score: "accuracy", or "(accuracy + f1) / 2"."""
    aggregation: str
    protocol: str
    start: str
    rate: float
    """The one reported: the best on the dev set by the aggregate of the task's first column."""
    rates: Mapping[float, Mapping[int, float]]
    """Learning rate -> seed -> score, all that finished."""
    metrics: Mapping[int, Mapping[str, float]]
    """Seed -> metric -> value, at the reported rate."""
    score: float
    majority: float
    rows: int
    seconds: float
    """Median over the runs."""
    planned: tuple[int, int]
    """Rates and seeds that the protocol wants."""
    capped: tuple[int, int] | None
    """Training rows used and there, where the protocol takes only some of them."""

    @property
    def runs(self) -> list[float]:
        """Scores at the reported rate, by seed."""
        return list(self.rates[self.rate].values())

    @property
    def mean(self) -> float:
        return statistics.fmean(self.runs)

    @property
    def std(self) -> float | None:
        """Of the sample, with n - 1; None of a single run."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 else None

    def as_json(self) -> dict[str, Any]:
        every = [{"learning_rate": rate, "scores": dict(runs)} for rate, runs in self.rates.items()]
        numbers = {"median": statistics.median(self.runs), "mean": self.mean, "std": self.std, "best": max(self.runs)}
        names = ("task", "column", "metric", "aggregation", "protocol", "start", "score", "majority", "rows", "capped")
        return {**{name: getattr(self, name) for name in names}, "learning_rate": self.rate, **numbers, "runs": every}


@dataclasses.dataclass(frozen=True)
class Mean:
    """A named average over the columns of one encoder and protocol."""

    name: str
    own: bool
    """Whether it is the one the protocol's paper prints."""
    protocol: str
    start: str
    value: float | None
    """Over the columns' scores, each aggregated over its seeds first; None where some are missing."""
    seeds: Mapping[int, float]
    """The average of each seed that all columns have."""
    missing: tuple[str, ...]
    formula: str

    @property
    def std(self) -> float | None:
        """Of the seeds' averages, with n - 1."""
        return statistics.stdev(self.seeds.values()) if len(self.seeds) > 1 else None


def summarise(records: Sequence[Record]) -> list[Line]:
    """One line for each column of each task, protocol, start and data, in the order of their first records."""
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        if "failed" not in record:
            key = (record["task"], record["start"], json.dumps(record["settings"], sort_keys=True), record["data"])
            groups.setdefault(key, []).append(record)
    return [line for group in groups.values() for line in _lines(group)]


def protocol_of(record: Record) -> Protocol:
    return PROTOCOLS.get(record["protocol"], PROTOCOLS["default"])


def _lines(group: Sequence[Record]) -> list[Line]:
    first, protocol = group[0], protocol_of(group[0])
    runs: dict[float, list[Record]] = {}
    for record in sorted(group, key=lambda record: (record["learning_rate"], record["seed"])):
        runs.setdefault(record["learning_rate"], []).append(record)
    seeds = max(map(len, runs.values()))  # a rate that has not all its seeds yet is not compared
    rate = max(
        (rate for rate in runs if len(runs[rate]) == seeds),
        key=lambda rate: protocol.aggregate([record["score"] for record in runs[rate]]),
    )
    metrics = first["settings"]["metrics"]
    lines = []
    for column, of_column in first["columns"].items():
        rates = {r: {record["seed"]: record["columns"][column]["score"] for record in runs[r]} for r in runs}
        lines.append(
            Line(
                task=first["task"],
                column=column,
                metric=metrics[0] if len(metrics) == 1 else f"({' + '.join(metrics)}) / {len(metrics)}",
                aggregation=protocol.aggregation,
                protocol=first["settings"]["protocol"],
                start=first["start"],
                rate=rate,
                rates=rates,
                metrics={record["seed"]: record["columns"][column]["metrics"] for record in runs[rate]},
                score=protocol.aggregate(list(rates[rate].values())),
                majority=of_column["majority"],
                rows=of_column["rows"],
                seconds=statistics.median(record["seconds"] for record in group),
                planned=(len(first["rates"]), len(protocol.seeds)),
                capped=(most, first["training_rows"]) if (most := first["settings"]["most_rows"]) else None,
            )
        )
    return lines


def mean_lines(records: Sequence[Record]) -> list[Mean]:
    """All named averages of each start and protocol; none for a protocol whose columns enter no average.

    Where a column was scored on several data, its last line counts.
    """
    known = {column for average in AVERAGES.values() for column, _ in average.scores}
    groups: dict[tuple[str, str], dict[str, Line]] = {}
    for line in summarise(records):
        if line.column in known:
            groups.setdefault((line.start, line.protocol), {})[line.column] = line
    own = {record["settings"]["protocol"]: protocol_of(record).average for record in records}
    means = []
    for (start, protocol), lines in groups.items():
        seeds = sorted(set.intersection(*(set(line.metrics) for line in lines.values())))
        of_seed = {seed: averages({name: line.metrics[seed] for name, line in lines.items()}) for seed in seeds}
        for place, average in enumerate(averages({name: _aggregated(line) for name, line in lines.items()})):
            values = {seed: of_seed[seed][place].value for seed in seeds if average.value is not None}
            means.append(
                Mean(average.name, average.name == own[protocol], protocol, start, average.value, values,
                     average.missing, average.formula)
            )  # fmt: skip
    return means


def _aggregated(line: Line) -> dict[str, float]:
    protocol_aggregate = {"median": statistics.median, "mean": statistics.fmean}[line.aggregation]
    names = next(iter(line.metrics.values()))
    return {name: protocol_aggregate([values[name] for values in line.metrics.values()]) for name in names}


def notes(records: Sequence[Record]) -> list[str]:
    """What was out of the ordinary: failed runs, what a record notes, grids not done, scores at chance."""
    found = []
    for record in records:
        where = f"{record['task']} seed {record['seed']}"
        if len(record["rates"]) > 1:
            where += f" learning rate {record['learning_rate']:g}"
        if "failed" in record:
            found.append(f"{where}: failed, not scored: {record['failed']}")
        else:
            found += [f"{where}: {note}" for note in record["notes"]]
    for line in summarise(records):
        seeds = [len(runs) for runs in line.rates.values()]
        if len(seeds) < line.planned[0] or min(seeds) < max(seeds):
            done = sum(seeds)
            found.append(f"{line.column} ({line.protocol}): the grid is not done, runs so far: {done}")
        if not max(value for runs in line.rates.values() for value in runs.values()) > line.majority:
            found.append(
                f"{line.column} ({line.protocol}, {line.start}): no run is better than the majority; it has learned "
                "nothing, or labels or tokenizer do not fit"
            )
    return found
