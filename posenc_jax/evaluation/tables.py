"""Score records as tables that say what a number is: metric, split, seeds and how they were put together."""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc_jax.data.rows import write_whole

REPORT_FILE = "report.md"
HEADING = "## Fine-tuning"
CAPTION = (
    "Scores x 100 on the whole dev set, last state of each run; with several seeds the median. "
    "Majority: the same metric of the most frequent training label."
)
COLUMNS = ("task", "metric", "score", "each seed", "majority", "start", "protocol", "dev rows", "seconds")


@dataclasses.dataclass(frozen=True)
class Line:
    """The runs of one task that differ by their seed only."""

    task: str
    metric: str
    scores: tuple[float, ...]
    """By seed, ascending."""
    majority: float
    start: str
    protocol: str
    rows: int
    seconds: float
    """Median over the seeds."""

    def cells(self) -> tuple[str, ...]:
        scores = [f"{100 * value:.2f}" for value in self.scores]
        median = f"{100 * statistics.median(self.scores):.2f}"
        each = " ".join(scores) if len(scores) > 1 else "1 seed"
        majority = f"{100 * self.majority:.2f}"
        return (
            self.task, self.metric, median, each, majority, self.start, self.protocol, f"{self.rows}", f"{self.seconds:.0f}"
        )  # fmt: skip


def summarise(records: Sequence[dict[str, Any]]) -> list[Line]:
    """One line for each task, start, protocol and data, in the order of their first records."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for record in records:
        protocol = f"{record['epochs']} epochs x {record['batch_size']}, lr {record['learning_rate']:g}"
        groups.setdefault((record["task"], record["start"], protocol, record["data"]), []).append(record)
    lines = []
    for (task, start, protocol, _), group in groups.items():
        group = sorted(group, key=lambda record: record["seed"])
        first = group[0]
        lines.append(
            Line(
                task=task,
                metric=first["metric"],
                scores=tuple(record["score"] for record in group),
                majority=first["majority"],
                start=start,
                protocol=protocol,
                rows=first["rows"],
                seconds=statistics.median(record["seconds"] for record in group),
            )
        )
    return lines


def notes(records: Sequence[dict[str, Any]]) -> list[str]:
    """What was out of the ordinary, with the run it concerns."""
    return [f"{record['task']} seed {record['seed']}: {note}" for record in records for note in record["notes"]]


def print_table(records: Sequence[dict[str, Any]]) -> None:
    """The table on the terminal; columns keep their width where there is none."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    table = Table(caption=CAPTION, caption_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in ("score", "majority", "dev rows", "seconds") else "left")
    for line in summarise(records):
        table.add_row(*line.cells())
    console.print(table)
    for note in notes(records):
        console.print(note, highlight=False, markup=False)


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """The same table and notes for a file."""
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *(line.cells() for line in summarise(records))]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return "\n\n".join([CAPTION, table, *(f"- {note}" for note in notes(records))])


def write_report(workdir: Path, records: Sequence[dict[str, Any]]) -> None:
    """Puts the table into WORKDIR/report.md, in place of an earlier one; what else the file says stays."""
    path = workdir / REPORT_FILE
    before = path.read_text("utf-8") if path.exists() else f"# {workdir.absolute().name}\n"
    head, _, rest = before.partition(f"{HEADING}\n")
    after = rest[rest.index("\n## ") + 1 :] if "\n## " in rest else ""
    parts = [head.rstrip(), f"{HEADING}\n\n{markdown(records)}", after.strip()]
    write_whole(path, "\n\n".join(part for part in parts if part) + "\n")
