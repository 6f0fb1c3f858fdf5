"""Tables that say what a number is: metric, split, seeds and how they were put together."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from posenc_jax.data.rows import write_whole
from posenc_jax.evaluation.scores import Record

REPORT_FILE = "report.md"
SCORES_CAPTION = (
    "Scores x 100 on the whole dev set, last state of each run; with several seeds of the fine-tuning the median. "
    "Majority: the same metric of the most frequent training label."
)
SCORE_COLUMNS = ("task", "metric", "score", "each seed", "majority", "start", "protocol", "dev rows", "seconds")


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells as text, and a caption that says what they are."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()
    """Columns set flush right."""

    def markdown(self) -> str:
        """Caption and table for a file."""
        marks = ["---:" if name in self.numbers else "---" for name in self.columns]
        cells = [[cell.replace("|", r"\|") for cell in row] for row in self.rows]
        lines = ["| " + " | ".join(row) + " |" for row in (self.columns, marks, *cells)]
        return "\n".join([self.caption, "", *lines])

    def show(self) -> None:
        """Prints the table on the terminal; where there is none, columns keep their width."""
        from rich import box, console, table

        out = console.Console()
        if not out.is_terminal:
            out = console.Console(width=180)
        grid = table.Table(box=box.SIMPLE_HEAD)
        for name in self.columns:
            grid.add_column(name, justify="right" if name in self.numbers else "left")
        for row in self.rows:
            grid.add_row(*(cell.replace("[", r"\[") for cell in row))
        out.print(grid)
        out.print(self.caption, markup=False, highlight=False)


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
            self.task, self.metric, median, each, majority,
            self.start, self.protocol, f"{self.rows}", f"{self.seconds:.0f}",
        )  # fmt: skip


def summarise(records: Sequence[Record]) -> list[Line]:
    """One line for each task, start, protocol and data, in the order of their first records."""
    groups: dict[tuple, list[Record]] = {}
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


def score_table(records_of: Mapping[str, Sequence[Record]]) -> Table:
    """The scores of one run or of several, a task's lines together; runs are named where there are several."""
    lines = [(name, line) for name, records in records_of.items() for line in summarise(records)]
    tasks = list(dict.fromkeys(line.task for _, line in lines))
    lines.sort(key=lambda pair: tasks.index(pair[1].task))
    several = len(records_of) > 1
    return Table(
        SCORES_CAPTION,
        (*(["run"] if several else []), *SCORE_COLUMNS),
        [(*([name] if several else []), *line.cells()) for name, line in lines],
        numbers=("score", "majority", "dev rows", "seconds"),
    )


def notes(records: Sequence[Record]) -> list[str]:
    """What was out of the ordinary, with the run it concerns."""
    return [f"{record['task']} seed {record['seed']}: {note}" for record in records for note in record["notes"]]


def print_table(records: Sequence[Record]) -> None:
    """Scores and notes of one run on the terminal."""
    score_table({"": records}).show()
    for note in notes(records):
        print(note)


def write_sections(path: Path, sections: Mapping[str, str]) -> None:
    """Puts "## HEADING" sections into a Markdown file, in place of earlier ones; what else the file says stays."""
    text = path.read_text("utf-8") if path.exists() else f"# {path.absolute().parent.name}\n"
    for heading, body in sections.items():
        head, _, rest = text.partition(f"## {heading}\n")
        after = rest[rest.index("\n## ") + 1 :] if "\n## " in rest else ""
        text = "\n\n".join(part for part in (head.rstrip(), f"## {heading}\n\n{body}", after.strip()) if part) + "\n"
    write_whole(path, text)
