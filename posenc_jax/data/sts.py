"""Sentence pairs with a human score: STS12 to STS16, STS-B and SICK-R, in the layouts they are found in.

Under DIR, the first that is there is taken:

- STS12 to STS16: `STS12/NAME.SPLIT.tsv` (score, sentence, sentence), or SentEval's `STS12-en-test/STS.input.NAME.txt`
  with `STS.gs.NAME.txt` beside it, also under DIR/STS, where pairs without a score are left out as SentEval does;
- STS-B: `sts-SPLIT.csv` in `STSB`, `STSBenchmark` or `stsbenchmark`, also under DIR/STS, or GLUE's `STS-B/SPLIT.tsv`;
- SICK-R: `SICK/SICK_test_annotated.txt`, `SICK_train.txt`, `SICK_trial.txt` (the dev split).

Files are read without quoting. What is wrong with one is told by file and line.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from posenc_jax.data.task_files import load_split
from posenc_jax.data.tasks import TASKS
from posenc_jax.data.textfiles import numbered_lines
from posenc_jax.errors import UserError

SPLITS = ("test", "dev", "train")

SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "OnWN", "SMTeuroparl", "SMTnews"),
    "STS13": ("FNWN", "OnWN", "SMT", "headlines"),
    "STS14": ("OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
"""The test sub-sets of each year's task. STS13's SMT is under a licence of its own; SentEval leaves it out too."""
TRAINING_SUBSETS = {"STS12": ("MSRpar", "MSRvid", "SMTeuroparl")}
"""Only the first year's task had a training split."""

NAMES = ("STS-B", "SICK-R", *SUBSETS)

_SICK_FILES = {"test": "SICK_test_annotated.txt", "dev": "SICK_trial.txt", "train": "SICK_train.txt"}
_STSB_FOLDERS = ("STSB", "STSBenchmark", "stsbenchmark", "STS/STSBenchmark")


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The sentence pairs of one file, in its order."""

    name: str
    """Of the sub-set; of a set in one file, that of the split."""
    texts_a: list[str]
    texts_b: list[str]
    scores_N: np.ndarray
    """Float64: 0 to 5, SICK 1 to 5."""

    def __len__(self) -> int:
        return len(self.scores_N)


@dataclasses.dataclass(frozen=True)
class StsSet:
    """One split of a set, with what of it is not there."""

    name: str
    parts: list[Pairs]
    missing: tuple[str, ...]
    """Sub-sets that the task has and DIR has not."""
    digest: str
    """Of sentences and scores, so that layouts with the same pairs agree."""


def load_sts(directory: str | Path, split: str = "test") -> tuple[list[StsSet], dict[str, str]]:
    """All sets under `directory` in the order of `NAMES`, and why each of the others is not there.

    Raises `UserError` for a folder without any of them, and for whatever is wrong with a file: file, line, mend.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise UserError(f"there is no folder {directory}; name the one that holds STS12, STSB, SICK and so on")
    found, absent = [], {}
    for name in NAMES:
        parts, missing = _load(directory, name, split)
        if parts:
            found.append(StsSet(name, parts, missing, _digest(parts)))
        else:
            absent[name] = _why_absent(name, split)
    if not found:
        raise UserError(
            f"{directory} holds no {split} split of {', '.join(NAMES)}: " + "; ".join(map(": ".join, absent.items()))
        )
    return found, absent


def _load(directory: Path, name: str, split: str) -> tuple[list[Pairs], tuple[str, ...]]:
    if name in SUBSETS:
        wanted = _subsets(name, split)
        parts = {subset: _read_subset(directory, name, subset, split) for subset in wanted}
        return [part for part in parts.values() if part], tuple(s for s, part in parts.items() if not part)
    part = _read_sick(directory, split) if name == "SICK-R" else _read_stsb(directory, split)
    return [part] if part else [], ()


def _subsets(name: str, split: str) -> Sequence[str]:
    return {"test": SUBSETS, "train": TRAINING_SUBSETS}.get(split, {}).get(name, ())


def _why_absent(name: str, split: str) -> str:
    if name == "SICK-R":
        return f"no SICK/{_SICK_FILES[split]}"
    if name == "STS-B":
        glue = "" if split == "test" else f", nor STS-B/{split}.tsv"
        return f"no sts-{split}.csv in {' or '.join(_STSB_FOLDERS)}{glue}"
    if not _subsets(name, split):
        return f"the task has no {split} split"
    senteval = f", nor STS/{name}-en-test/STS.input.*.txt" if split == "test" else ""
    return f"no {name}/*.{split}.tsv{senteval}"


def _read_subset(directory: Path, name: str, subset: str, split: str) -> Pairs | None:
    path = directory / name / f"{subset}.{split}.tsv"
    if path.is_file():
        rows = _rows(path, least=3, what="score, sentence, sentence")
        return _pairs(path, subset, ((number, row[0], row[1], row[2]) for number, row in rows))
    for folder in (directory / f"{name}-en-{split}", directory / "STS" / f"{name}-en-{split}"):
        for stem in (subset, f"surprise.{subset}"):  # SentEval keeps the task's name for what had no training pairs
            path = folder / f"STS.input.{stem}.txt"
            if path.is_file():
                return _read_senteval(path, folder / f"STS.gs.{stem}.txt", subset)
    return None


def _read_senteval(path: Path, gold: Path, subset: str) -> Pairs:
    if not gold.is_file():
        raise UserError(f"{path} has no scores beside it; put {gold.name} there")
    rows = list(_rows(path, least=2, what="sentence, sentence"))
    scores = [line.strip() for _, line in numbered_lines(gold)]
    if len(rows) != len(scores):
        raise UserError(f"{gold} has {len(scores)} lines and {path.name} {len(rows)}; line i of both is one pair")
    scored = ((number, score, *row[:2]) for (number, row), score in zip(rows, scores, strict=True) if score)
    return _pairs(path, subset, scored, scores_of=gold)


def _read_stsb(directory: Path, split: str) -> Pairs | None:
    for folder in _STSB_FOLDERS:
        path = directory / folder / f"sts-{split}.csv"
        if path.is_file():
            rows = _rows(path, least=7, what="genre, file, year, id, score, sentence, sentence")
            return _pairs(path, split, ((number, row[4], row[5], row[6]) for number, row in rows))
    if split == "test" or not (directory / "STS-B" / f"{split}.tsv").is_file():  # GLUE gives its test set no scores
        return None
    examples = load_split(directory, TASKS["STS-B"], split)
    return Pairs(split, examples.texts_a, examples.texts_b, np.asarray(examples.labels, np.float64))


def _read_sick(directory: Path, split: str) -> Pairs | None:
    path = directory / "SICK" / _SICK_FILES[split]
    if not path.is_file():
        return None
    rows = _rows(path, least=4, what="pair_ID, sentence_A, sentence_B, relatedness_score")
    _, header = next(rows, (1, []))
    places = []
    for name in ("relatedness_score", "sentence_A", "sentence_B"):
        if name not in header:
            raise UserError(f"{path} line 1 names no column {name!r}; it names {', '.join(map(repr, header))}")
        places.append(header.index(name))
    chosen = ((number, *(_field(path, number, row, place) for place in places)) for number, row in rows)
    return _pairs(path, split, chosen, lowest=1.0)


def _rows(path: Path, least: int, what: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every line, at least so many."""
    for number, line in numbered_lines(path):
        fields = line.split("\t")
        if len(fields) < least:
            raise UserError(f"{path} line {number} has {len(fields)} of at least {least} fields ({what}); is it cut?")
        yield number, fields


def _field(path: Path, number: int, row: list[str], place: int) -> str:
    if place >= len(row):
        raise UserError(f"{path} line {number} has {len(row)} fields, and the header names more; is it cut?")
    return row[place]


def _pairs(
    path: Path,
    name: str,
    rows: Iterator[tuple[int, str, str, str]],
    lowest: float = 0.0,
    scores_of: Path | None = None,
) -> Pairs:
    """Checks (line, score, sentence, sentence). `scores_of` is the file of the scores where it is another."""
    texts_a, texts_b, scores = [], [], []
    for number, score, text_a, text_b in rows:
        for text, which in ((text_a, "first"), (text_b, "second")):
            if not text.strip():
                raise UserError(f"{path} line {number} has no {which} sentence; mend or drop the line")
        scores.append(_score(scores_of or path, number, score, lowest))
        texts_a.append(text_a.strip())
        texts_b.append(text_b.strip())
    if not scores:
        raise UserError(f"{path} holds no scored pair")
    return Pairs(name, texts_a, texts_b, np.asarray(scores, np.float64))


def _score(path: Path, number: int, value: str, lowest: float) -> float:
    try:
        score = float(value)
    except ValueError:
        score = None
    if score is None or not lowest <= score <= 5:
        raise UserError(f"{path} line {number} has the score {value!r}; a number from {lowest:g} to 5 is wanted")
    return score


def _digest(parts: Sequence[Pairs]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        for text_a, text_b, score in zip(part.texts_a, part.texts_b, part.scores_N, strict=True):
            digest.update(f"{part.name}\t{score:g}\t{text_a}\t{text_b}\n".encode())
    return digest.hexdigest()[:12]
