"""What a task is: which columns hold the texts and the label, what the labels are called, what is measured.

All of it data. Columns and labels are found by name, never by place or number: sources differ in both.
"""

import dataclasses
import difflib
import hashlib
from collections.abc import Sequence
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


def label_array(labels: Sequence[float], task: TaskSpec) -> np.ndarray:
    return np.asarray(labels, np.float32 if task.kind == "regression" else np.int32)


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
