"""The zip that gluebenchmark.com scores: one TSV a test set, from what the best runs of a workdir answered."""

import dataclasses
import io
import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from posenc_jax.data.rows import write_whole
from posenc_jax.data.tasks import TASKS, TaskSpec, column
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.glue.scores import PREDICTIONS, Record, read_scores
from posenc_jax.evaluation.tables import Table

HEADER = "index\tprediction"
_UNDATED = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can say, so that the same answers make the same bytes


@dataclasses.dataclass(frozen=True)
class Sheet:
    """One file of the zip."""

    task: str
    """Whose run answers it: MNLI's also answers AX."""
    split: str
    rows: int
    """As the leaderboard counts its test set."""

    @property
    def name(self) -> str:
        return column(TASKS[self.task], self.split) if self.split != "AX" else "AX"

    @property
    def spec(self) -> TaskSpec:
        return TASKS[self.task]


SHEETS = (
    Sheet("CoLA", "test", 1_063),
    Sheet("SST-2", "test", 1_821),
    Sheet("MRPC", "test", 1_725),
    Sheet("STS-B", "test", 1_379),
    Sheet("QQP", "test", 390_965),
    Sheet("MNLI", "test_matched", 9_796),
    Sheet("MNLI", "test_mismatched", 9_847),
    Sheet("QNLI", "test", 5_463),
    Sheet("RTE", "test", 3_000),
    Sheet("WNLI", "test", 146),
    Sheet("MNLI", "AX", 1_104),
)
"""All that a complete submission holds: names as gluebenchmark.com/faq wants them, rows as in GLUE's test files."""


@dataclasses.dataclass(frozen=True)
class Submission:
    """What was written, and from which runs."""

    path: Path
    runs: dict[str, Record]
    """The chosen record of each file, by its name without .tsv."""
    missing: tuple[str, ...]
    """Files left out, each with the reason."""
    notes: tuple[str, ...]


def submit(workdir: str | Path, out: str | Path, *, protocol: str | None = None, partial: bool = False) -> Submission:
    """Writes the zip from a workdir's records and the answers that `glue --test` left beside them.

    Of a task's runs with answers the one with the best dev score is taken; `protocol` narrows them to those of one
    name, or of one label ("quick, 2 epochs"). Raises `UserError` when files would be missing (unless `partial`, as long
    as there is one), when answers are not numbers of the task, or are not as many as the leaderboard's rows. The file
    is whole or not there.
    """
    workdir, out = Path(workdir), Path(out)
    if out.is_dir():
        raise UsageError(f"{out} is a folder; --out names the zip file to write, such as {out / 'submission.zip'}")
    records = _records(workdir, protocol)
    runs, texts, missing, notes = {}, {}, [], []
    for sheet in SHEETS:
        record, reason = _choose(workdir, records, sheet)
        if record is None:
            missing.append(f"{sheet.name} ({reason})")
            continue
        if reason:
            notes.append(f"{sheet.name}: {reason}")
        path = _answers_path(workdir, record)
        words = _words(sheet, _read_answers(path)[sheet.split], path)
        if len(set(words)) == 1:
            notes.append(f"{sheet.name}: every answer is {words[0]}")
        runs[sheet.name] = record
        texts[f"{sheet.name}.tsv"] = "\n".join([HEADER, *(f"{i}\t{word}" for i, word in enumerate(words)), ""])
    if missing and (not partial or not texts):
        mend = "run `glue --test` on them" + ("" if partial else ", or take what is there with --partial")
        raise UserError(f"{workdir} has no answers for {', '.join(missing)}; {mend}")
    if len(starts := sorted({str(record["start"]) for record in runs.values()})) > 1:
        notes.append(f"the runs did not all start from the same weights: {', '.join(starts)}")
    content = _zip(texts)
    check_submission(io.BytesIO(content))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, content)
    check_submission(out)
    return Submission(out, runs, tuple(missing), tuple(notes))


def submission_table(submission: Submission) -> Table:
    """Which run answered each file."""
    rows = [
        (
            f"{name}.tsv",
            record["task"],
            f"{100 * record['score']:.2f}",
            f"{_label(record)}, learning rate {record['learning_rate']:g}, seed {record['seed']}",
            str(record["start"]),
        )
        for name, record in submission.runs.items()
    ]
    caption = "Dev score: of the run as its protocol scores the task, x 100; the best of the task's runs with answers."
    return Table(caption, ("file", "task", "dev score", "run", "start"), rows, numbers=("dev score",))


def check_submission(file: Path | BinaryIO) -> dict[str, int]:
    """Reads a submission as the leaderboard would; returns the rows of each file in it.

    Raises `UserError` for a file that is none of the leaderboard's, another header, an index that is not 0, 1, 2, ...,
    as many rows as the test set has not, or a prediction that is no label of the task. Files may be missing.
    """
    sheets = {f"{sheet.name}.tsv": sheet for sheet in SHEETS}
    name = str(file) if isinstance(file, Path) else "the submission"
    rows = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for inner in archive.namelist():
                if inner not in sheets or inner in rows:
                    raise UserError(f"{name} holds {inner}, which is none of {', '.join(sheets)}, or holds it twice")
                rows[inner] = _check_sheet(f"{name}, {inner}", sheets[inner], archive.read(inner).decode("utf-8"))
    except (zipfile.BadZipFile, UnicodeDecodeError, EOFError) as error:
        raise UserError(f"{name} is no whole zip of text files: {error}") from error
    return rows


def _records(workdir: Path, protocol: str | None) -> list[Record]:
    if not workdir.is_dir():
        raise UserError(f"there is no folder {workdir}; give the workdir that `glue --test` scored")
    records = [record for record in read_scores(workdir) if "failed" not in record]
    if not records:
        raise UserError(f"{workdir} has no scores; run `glue --workdir {workdir} --test` first")
    if protocol is None:
        return records
    kept = [record for record in records if protocol in (record["protocol"], _label(record))]
    if not kept:
        known = sorted({_label(record) for record in records})
        raise UserError(f"{workdir} has no run of protocol {protocol!r}; it has {', '.join(map(repr, known))}")
    return kept


def _label(record: Record) -> str:
    """The protocol's name and what was changed of it."""
    return record["settings"].get("protocol", record["protocol"])


def _choose(workdir: Path, records: Sequence[Record], sheet: Sheet) -> tuple[Record | None, str]:
    """The run of best dev score that answered the sheet, the first of equals; and what to say about the choice."""
    candidates = sorted((record for record in records if record["task"] == sheet.task), key=lambda r: -r["score"])
    if not candidates:
        return None, f"no run of {sheet.task}"
    for record in candidates:
        path = _answers_path(workdir, record)
        if path.is_file() and sheet.split in _read_answers(path):
            best = candidates[0]["score"]
            left = f"a run with the better dev score {100 * best:.2f} has no answers; `glue --test` makes them"
            return record, left if record["score"] < best else ""
    return None, f"its run{'s have' if len(candidates) > 1 else ' has'} no answers to {sheet.split}"


def _answers_path(workdir: Path, record: Record) -> Path:
    return workdir / PREDICTIONS / f"{record['id']}.npz"


def _read_answers(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged ({error}); delete it and run `glue --test` again") from error


def _words(sheet: Sheet, answers_N: np.ndarray, path: Path) -> list[str]:
    """What the leaderboard reads: a label by its name in GLUE's files, or a score within its scale."""
    if answers_N.shape != (sheet.rows,):
        raise UserError(
            f"{path} answers {sheet.split} with an array {answers_N.shape}, but the leaderboard's {sheet.name} has "
            f"{sheet.rows} rows; give `glue --test` the test file of GLUE"
        )
    spec = sheet.spec
    if spec.kind == "regression":
        good_N = np.isfinite(answers_N)
    else:
        good_N = np.isin(answers_N, range(len(spec.labels)))
    if not good_N.all():
        row = int(np.argmin(good_N))
        raise UserError(f"{path} answers {sheet.split}, row {row}, with {answers_N[row]:g}, which is no answer")
    if spec.kind == "regression":
        return [f"{value:.3f}" for value in np.clip(answers_N.astype(np.float64), spec.lowest, spec.highest)]
    return [spec.labels[int(value)] for value in answers_N]


def _zip(texts: dict[str, str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            entry = zipfile.ZipInfo(name, _UNDATED)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, text)
    return file.getvalue()


def _check_sheet(where: str, sheet: Sheet, text: str) -> int:
    lines = text.split("\n")
    if lines[0] != HEADER or lines[-1]:
        raise UserError(f"{where} does not begin with the line {HEADER!r}, or its last line has no end")
    rows = [line.split("\t") for line in lines[1:-1]]
    if len(rows) != sheet.rows:
        raise UserError(f"{where} has {len(rows)} rows in place of {sheet.rows}")
    for number, row in enumerate(rows):
        if len(row) != 2 or row[0] != str(number) or not _is_answer(row[1], sheet.spec):
            raise UserError(f"{where} line {number + 2} is {row}, not the index {number} and an answer of {sheet.task}")
    return len(rows)


def _is_answer(word: str, spec: TaskSpec) -> bool:
    if spec.kind == "classification":
        return word in spec.labels
    try:
        return spec.lowest <= float(word) <= spec.highest and math.isfinite(float(word))
    except ValueError:
        return False
