"""Task files in the GLUE download layout, DIR/TASK/{train,dev}.tsv, read strictly.

A task is data: which columns hold the texts and the label, what the labels are called, what is measured. Files are
read as tab-separated text without quoting (a double quote is a character like any other: GLUE fields hold stray ones),
with LF or CRLF line ends, with or without a byte order mark. Whatever else is wrong is told by file and line.
"""

import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from posenc_jax.errors import UsageError, UserError


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    name: str
    """Also the name of the task's folder."""
    kind: Literal["classification", "regression"]
    texts: tuple[str, ...]
    """Columns of the sentence, or of the two sentences."""
    label: str
    """Column of the label or score."""
    labels: tuple[str, ...] = ()
    """Labels as the file writes them; class i is labels[i], and the last is the positive one of F1."""
    metrics: tuple[str, ...] = ("accuracy",)
    """Names in `evaluation.metrics.METRICS`; the first is the one a table shows (Ke, He, Liu 2021, section 4.1)."""
    columns: tuple[str, ...] = ()
    """Names of the columns when the file has no header line; empty: the first line names them."""
    lowest: float = 0.0
    highest: float = 5.0
    """Range of a regression task's scores."""


TASKS: dict[str, TaskSpec] = {
    task.name: task
    for task in (
        TaskSpec("CoLA", "classification", ("sentence",), "label", ("0", "1"), ("matthews", "accuracy"),
                 columns=("source", "label", "mark", "sentence")),
        TaskSpec("SST-2", "classification", ("sentence",), "label", ("0", "1")),
        TaskSpec("MRPC", "classification", ("#1 String", "#2 String"), "Quality", ("0", "1"), ("accuracy", "f1")),
        TaskSpec("STS-B", "regression", ("sentence1", "sentence2"), "score", metrics=("pearson", "spearman")),
        TaskSpec("RTE", "classification", ("sentence1", "sentence2"), "label", ("not_entailment", "entailment")),
        TaskSpec("order", "classification", ("sentence",), "label", ("exchanged", "original")),
        TaskSpec("next", "classification", ("sentence1", "sentence2"), "label", ("elsewhere", "next")),
    )
}  # fmt: skip
"""GLUE's tasks, and the probes that `posenc_jax.data.probes` makes from any text."""


@dataclasses.dataclass(frozen=True)
class Examples:
    """One split of a task, in file order."""

    texts_a: list[str]
    texts_b: list[str] | None
    """None for a task of single sentences."""
    labels: np.ndarray
    """[N] int32 classes, or float32 scores."""

    def __len__(self) -> int:
        return len(self.labels)


def find_task(name: str) -> TaskSpec:
    """The task of that name. Raises `UsageError` with the nearest one."""
    if name not in TASKS:
        lower = {known.lower(): known for known in TASKS}
        close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
        hint = f"; did you mean {lower[close[0]]!r}?" if close else ""
        raise UsageError(f"there is no task {name!r}; known are {', '.join(TASKS)}{hint}")
    return TASKS[name]


def load_split(directory: str | Path, task: TaskSpec, split: str) -> Examples:
    """Reads DIR/TASK/SPLIT.tsv whole. Raises `UserError`: file, line, what is wrong with it."""
    path = find_file(directory, task, split)
    lines = _read_lines(path)
    header = list(task.columns) or lines[0].split("\t")
    first = 0 if task.columns else 1
    places = [_column(path, header, name) for name in (*task.texts, task.label)]
    rows = [_fields(path, first + i + 1, line, header, places) for i, line in enumerate(lines[first:])]
    if not rows:
        raise UserError(f"{path} has a header line and no rows")
    labels = [_label(path, first + i + 1, row[-1], task) for i, row in enumerate(rows)]
    return Examples(
        texts_a=[row[0] for row in rows],
        texts_b=[row[1] for row in rows] if len(task.texts) == 2 else None,
        labels=np.asarray(labels, np.float32 if task.kind == "regression" else np.int32),
    )


def find_file(directory: str | Path, task: TaskSpec, split: str) -> Path:
    """DIR/TASK/SPLIT.tsv, or a `UserError` that says what is there instead."""
    directory = Path(directory)
    folder, path = directory / task.name, directory / task.name / f"{split}.tsv"
    if not directory.is_dir():
        raise UserError(f"there is no folder {directory}; give the one that holds {task.name}/{split}.tsv")
    if not folder.is_dir():
        raise UserError(f"{directory} has no folder {task.name}; it holds {_listing(directory)}")
    if not path.is_file():
        raise UserError(f"{folder} has no file {split}.tsv; it holds {_listing(folder)}")
    return path


def _listing(folder: Path, most: int = 12) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "nothing"


def _read_lines(path: Path) -> list[str]:
    """Lines without their ends. Only LF and CRLF end one: a field may hold a U+2028 or a form feed."""
    raw = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if not raw.strip():
        raise UserError(f"{path} is empty")
    if b"\0" in raw:
        raise UserError(f"{path} line {_line_of(raw, raw.index(0))} holds a NUL byte; this is not a text file")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = raw[error.start]
        line = _line_of(raw, error.start)
        raise UserError(f"{path} line {line} is not UTF-8 (byte 0x{bad:02x}); save the file as UTF-8") from None
    return [line.removesuffix("\r") for line in text.rstrip("\r\n").split("\n")]


def _line_of(raw: bytes, offset: int) -> int:
    return raw.count(b"\n", 0, offset) + 1


def _column(path: Path, header: Sequence[str], name: str) -> int:
    if name not in header:
        raise UserError(f"{path} line 1 names no column {name!r}; it names {', '.join(map(repr, header))}")
    return header.index(name)


def _fields(path: Path, number: int, line: str, header: Sequence[str], places: Sequence[int]) -> list[str]:
    fields = line.split("\t")
    if len(fields) != len(header):
        what = "is cut short" if len(fields) < len(header) else "has a tab too many"
        raise UserError(f"{path} line {number} {what}: {len(header)} columns, but fields: {len(fields)}")
    row = [fields[place] for place in places]
    for place, text in zip(places[:-1], row[:-1], strict=True):
        if not text.strip():
            raise UserError(f"{path} line {number} has no text in column {header[place]!r}")
    return row


def _label(path: Path, number: int, value: str, task: TaskSpec) -> float:
    if task.kind == "classification":
        if value not in task.labels:
            raise UserError(
                f"{path} line {number} has the label {value!r}; {task.name} knows {', '.join(map(repr, task.labels))}"
            )
        return task.labels.index(value)
    try:
        score = float(value)
    except ValueError:
        score = None
    if score is None or not task.lowest <= score <= task.highest:
        wanted = f"a number from {task.lowest:g} to {task.highest:g}"
        raise UserError(f"{path} line {number} has the score {value!r}; {task.name} wants {wanted}")
    return score
