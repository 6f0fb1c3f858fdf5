"""Task files in the GLUE download layout, DIR/TASK/{train,dev,test}.tsv, read strictly; or the same tasks out of TFDS.

A task is data: which columns hold the texts and the label, what the labels are called, what is measured. Files are
read as tab-separated text without quoting (a double quote is a character like any other: GLUE fields hold stray ones),
with LF or CRLF line ends, with or without a byte order mark. Whatever else is wrong is told by file and line. Columns
and labels are found by name, never by place or number: sources differ in both.
"""

import dataclasses
import difflib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from posenc_jax.errors import UsageError, UserError

MOST_CUT = 0.001
"""Share of lines of a `ragged` file that may be cut short; of QQP's 363,871 some twenty are."""
_IDS = ("index", "id")


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
    """Labels as the file writes them; class i is labels[i], and of two the second is the positive one of F1."""
    metrics: tuple[str, ...] = ("accuracy",)
    """Names in `evaluation.metrics.METRICS`; the first is the one a table shows (Ke, He, Liu 2021, section 4.1)."""
    columns: tuple[str, ...] = ()
    """Names of the columns where train and dev have no header line; empty: the first line names them."""
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ()
    """Splits without labels, whose predictions the leaderboard scores."""
    files: tuple[str, ...] = ("{task}/{split}.tsv",)
    """Where a split lies under the data folder; the first that is there counts."""
    lowest: float = 0.0
    highest: float = 5.0
    """Range of a regression task's scores."""
    no_label: str | None = None
    """What a row says that its annotators did not agree on; such rows are left out and counted."""
    ragged: bool = False
    """The official files hold a few lines cut in two by a line break inside a field, which the published loaders leave
    out (ELECTRA, fairseq, TFDS), and empty texts, which they keep. So do we, and count."""

    @property
    def splits(self) -> tuple[str, ...]:
        """All of them: "train" where there is something to learn from, dev, test."""
        return (*(("train",) if self.dev_splits else ()), *self.dev_splits, *self.test_splits)


_TEST, _PAIR, _NLI = ("test",), ("sentence1", "sentence2"), ("contradiction", "entailment", "neutral")
_ENTAILED = ("not_entailment", "entailment")

TASKS: dict[str, TaskSpec] = {
    task.name: task
    for task in (
        TaskSpec("CoLA", "classification", ("sentence",), "label", ("0", "1"), ("matthews", "accuracy"),
                 columns=("source", "label", "mark", "sentence"), test_splits=_TEST),
        TaskSpec("SST-2", "classification", ("sentence",), "label", ("0", "1"), test_splits=_TEST),
        TaskSpec("MRPC", "classification", ("#1 String", "#2 String"), "Quality", ("0", "1"), ("accuracy", "f1"),
                 test_splits=_TEST),
        TaskSpec("STS-B", "regression", _PAIR, "score", metrics=("pearson", "spearman"), test_splits=_TEST),
        TaskSpec("QQP", "classification", ("question1", "question2"), "is_duplicate", ("0", "1"), ("accuracy", "f1"),
                 test_splits=_TEST, ragged=True),
        TaskSpec("MNLI", "classification", _PAIR, "gold_label", _NLI, dev_splits=("dev_matched", "dev_mismatched"),
                 test_splits=("test_matched", "test_mismatched"), no_label="-"),
        TaskSpec("QNLI", "classification", ("question", "sentence"), "label", _ENTAILED, test_splits=_TEST),
        TaskSpec("RTE", "classification", _PAIR, "label", _ENTAILED, test_splits=_TEST),
        TaskSpec("WNLI", "classification", _PAIR, "label", ("0", "1"), test_splits=_TEST),
        TaskSpec("AX", "classification", _PAIR, "label", _NLI, ("matthews",), dev_splits=(), test_splits=("AX",),
                 files=("diagnostic/diagnostic.tsv", "AX/AX.tsv")),
        TaskSpec("order", "classification", ("sentence",), "label", ("exchanged", "original")),
        TaskSpec("next", "classification", _PAIR, "label", ("elsewhere", "next")),
    )
}  # fmt: skip
"""GLUE's nine tasks, its diagnostic set AX (which MNLI's model answers), and the probes that `posenc_jax.data.probes`
makes from any text."""

GLUE_TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI")
"""Those that are trained on, in the leaderboard's order."""

_COLUMNS = {
    "dev_matched": "MNLI-m",
    "dev_mismatched": "MNLI-mm",
    "test_matched": "MNLI-m",
    "test_mismatched": "MNLI-mm",
}


def column(task: TaskSpec, split: str) -> str:
    """What a results table and the leaderboard call a dev or test split: "CoLA", "MNLI-m", "MNLI-mm", "AX"."""
    return _COLUMNS.get(split, task.name)


@dataclasses.dataclass(frozen=True)
class Examples:
    """One split of a task, in file order."""

    texts_a: list[str]
    texts_b: list[str] | None
    """None for a task of single sentences."""
    labels: np.ndarray | None
    """[N] int32 classes, or float32 scores; None of a test file without labels."""
    index: list[str] = dataclasses.field(default_factory=list)
    """What the file's id column says of each row, or where it has none its number from 0."""
    notes: tuple[str, ...] = ()
    """What was left out of the file, counted, and why."""

    def __len__(self) -> int:
        return len(self.texts_a)

    def digest(self) -> str:
        """12 hexadecimal digits of texts and labels: equal for equal examples, whatever they were read from."""
        digest = hashlib.sha256()
        for texts in (self.texts_a, self.texts_b or []):
            digest.update("\0".join([str(len(texts)), *texts, ""]).encode())
        if self.labels is not None:
            digest.update(self.labels.tobytes())
        return digest.hexdigest()[:12]


def find_task(name: str) -> TaskSpec:
    """The task of that name. Raises `UsageError` with the nearest one."""
    if name not in TASKS:
        lower = {known.lower(): known for known in TASKS}
        close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
        hint = f"; did you mean {lower[close[0]]!r}?" if close else ""
        raise UsageError(f"there is no task {name!r}; known are {', '.join(TASKS)}{hint}")
    return TASKS[name]


class Missing(UserError):
    """A split, or all of a task, is not there; what is there may still be of use."""


def load_split(directory: str | Path, task: TaskSpec, split: str) -> Examples:
    """Reads a split whole: of the GLUE layout under `directory`, or of TFDS where that is "tfds" or "tfds:DATA_DIR".

    Lines of a `ragged` task that are cut short, and rows whose annotators did not agree (MNLI's label "-", of which the
    GLUE files have none), are left out; `Examples.notes` counts them. A test file's ids must be 0, 1, 2, ..., for the
    leaderboard knows rows by them. Raises `Missing` where there is no such file or dataset, and `UserError`: file,
    line, what is wrong with it.
    """
    _check_split(task, split)
    if (place := str(directory)) == "tfds" or place.startswith("tfds:"):
        from posenc_jax.data.tfds_tasks import load_tfds_split

        return load_tfds_split(place.partition(":")[2], task, split)
    path = find_file(directory, task, split)
    lines, whole = _read_lines(path)
    header, first = _header(path, task, split, lines[0])
    labelled = split not in task.test_splits or task.label in header
    places = [_column(path, task, header, name) for name in (*task.texts, *((task.label,) if labelled else ()))]
    ids = next((header.index(name) for name in _IDS if name in header), None)
    index, rows, labels, cut, undecided = [], [], [], [], 0
    for number, line in enumerate(lines[first:], first + 1):
        fields = line.split("\t")
        if task.ragged and len(fields) < len(header) and (whole or number < len(lines)):
            cut.append(number)
            continue
        row = _fields(path, number, fields, header, places, task)
        if labelled and row[-1] == task.no_label:
            undecided += 1
            continue
        if labelled:
            labels.append(parse_label(f"{path} line {number}", row[-1], task))
        index.append(str(number - first - 1) if ids is None else fields[ids])
        if split in task.test_splits and index[-1] != str(number - first - 1):
            raise UserError(
                f"{path} line {number} has the id {index[-1]!r} where {number - first - 1} is due; the leaderboard "
                "knows rows by their id: put them in order"
            )
        rows.append(row)
    if not rows:
        raise UserError(f"{path} has {'a header line and no' if len(lines) == first else 'no usable'} rows")
    return Examples(
        texts_a=[row[0] for row in rows],
        texts_b=[row[1] for row in rows] if len(task.texts) == 2 else None,
        labels=label_array(labels, task) if labelled else None,
        index=index,
        notes=_notes(path, task, cut, undecided, len(lines)),
    )


def label_array(labels: Sequence[float], task: TaskSpec) -> np.ndarray:
    return np.asarray(labels, np.float32 if task.kind == "regression" else np.int32)


def find_file(directory: str | Path, task: TaskSpec, split: str) -> Path:
    """The file of a split under the folder, or `Missing`, which says what is there instead."""
    _check_split(task, split)
    directory = Path(directory)
    paths = [directory / pattern.format(task=task.name, split=split) for pattern in task.files]
    for path in paths:
        if path.is_file():
            return path
    path, folder = paths[0], paths[0].parent
    if not directory.is_dir():
        raise Missing(f"there is no folder {directory}; give the one that holds {folder.name}/{path.name}")
    if not folder.is_dir():
        raise Missing(f"{directory} has no folder {folder.name}; it holds {_listing(directory)}")
    raise Missing(f"{folder} has no file {path.name}; it holds {_listing(folder)}")


def _check_split(task: TaskSpec, split: str) -> None:
    if split not in task.splits:
        raise UsageError(f"{task.name} has no split {split!r}; it has {', '.join(task.splits)}")


def _listing(folder: Path, most: int = 12) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "nothing"


def _read_lines(path: Path) -> tuple[list[str], bool]:
    """Lines without their ends, and whether the last one has its end. Only LF and CRLF end one: a field may hold a
    U+2028 or a form feed."""
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
    return [line.removesuffix("\r") for line in text.rstrip("\r\n").split("\n")], text.endswith("\n")


def _line_of(raw: bytes, offset: int) -> int:
    return raw.count(b"\n", 0, offset) + 1


def _header(path: Path, task: TaskSpec, split: str, line: str) -> tuple[Sequence[str], int]:
    """Names of the columns, and how many lines they take: none for CoLA's train and dev."""
    fields = line.split("\t")
    if not task.columns or split in task.test_splits:
        return fields, 1
    if len(fields) != len(task.columns) and set(task.texts) & set(fields):
        raise UserError(
            f"{path} line 1 names the columns {_quoted(fields)}, but a {split} file of {task.name} has no header line "
            f"and the columns {', '.join(task.columns)}; is this the test file?"
        )
    return task.columns, 0


def _column(path: Path, task: TaskSpec, header: Sequence[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    if name in header:
        raise UserError(f"{path} line 1 names the column {name!r} more than once; it names {_quoted(header)}")
    if name == task.label:
        mend = "; a test file without labels cannot be learnt from or scored"
    elif not {*task.texts, task.label, *_IDS} & set(header):
        mend = "; is the header line missing?"
    else:
        mend = ""
    raise UserError(f"{path} line 1 names no column {name!r}; it names {_quoted(header)}{mend}")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name if len(name) <= 40 else name[:37] + "...") for name in names)


def _fields(
    path: Path, number: int, fields: Sequence[str], header: Sequence[str], places: Sequence[int], task: TaskSpec
) -> list[str]:
    if len(fields) != len(header):
        what = "is cut short" if len(fields) < len(header) else "has a tab too many"
        raise UserError(f"{path} line {number} {what}: {len(header)} columns, but fields: {len(fields)}")
    row = [fields[place] for place in places]
    for name, text in zip(task.texts, row, strict=False):
        if not text.strip() and not task.ragged:
            raise UserError(f"{path} line {number} has no text in column {name!r}")
    return row


def parse_label(where: str, value: str, task: TaskSpec) -> float:
    """Class or score of a label as a file writes it. Raises `UserError` that begins with `where`."""
    if task.kind == "classification":
        if value not in task.labels:
            raise UserError(f"{where} has the label {value!r}; {task.name} knows {', '.join(map(repr, task.labels))}")
        return task.labels.index(value)
    try:
        score = float(value)
    except ValueError:
        score = None
    if score is None or not task.lowest <= score <= task.highest:
        wanted = f"a number from {task.lowest:g} to {task.highest:g}"
        raise UserError(f"{where} has the score {value!r}; {task.name} wants {wanted}")
    return score


def _notes(path: Path, task: TaskSpec, cut: Sequence[int], undecided: int, lines: int) -> tuple[str, ...]:
    """What was left out. More than a few lines cut short are no oddity of the official file but damage."""
    notes = []
    if cut:
        which = f"the first is line {cut[0]}"
        if len(cut) > MOST_CUT * lines:
            raise UserError(f"{path}: {len(cut)} of {lines} lines are cut short, {which}; fetch the file again")
        notes.append(f"{path.name} of {task.name}: {len(cut)} lines cut short left out ({which})")
    if undecided:
        notes.append(
            f"{path.name} of {task.name}: {undecided} rows without an agreed label ({task.no_label!r}) left out"
        )
    return tuple(notes)
