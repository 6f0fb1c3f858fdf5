"""Word in Context (Pilehvar and Camacho-Collados 2019): one word in two sentences, in the same sense or not.

DIR/SPLIT/SPLIT.data.txt has `word, part of speech, i-j, sentence, sentence` separated by tabs; i and j count the
space-separated tokens of the sentences from 0. DIR/SPLIT/SPLIT.gold.txt has T (same sense) or F, a line each.
"""

import dataclasses
import hashlib
import re
from pathlib import Path

import numpy as np

from posenc_jax.data.textfiles import numbered_lines
from posenc_jax.errors import UserError

SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class Place:
    """A sentence, and the characters [start, end) of the word in question."""

    text: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class WicSplit:
    """Pairs in file order."""

    name: str
    places_a: list[Place]
    places_b: list[Place]
    same_N: np.ndarray
    """Bool: the word has one sense in both."""
    digest: str
    """Of both files."""

    def __len__(self) -> int:
        return len(self.same_N)


def load_wic(directory: str | Path, split: str) -> WicSplit:
    """Reads data and gold of a split. Raises `UserError`: file, line, what is wrong with it."""
    directory = Path(directory)
    data, gold = (directory / split / f"{split}.{kind}.txt" for kind in ("data", "gold"))
    if not directory.is_dir():
        raise UserError(f"there is no folder {directory}; name the one that holds {split}/{split}.data.txt")
    if not data.is_file():
        raise UserError(f"there is no {data}; --data names the folder that holds {split}/{split}.data.txt")
    if not gold.is_file():
        raise UserError(f"{data} has no labels beside it; put {gold.name} there, or take a split that has them")
    pairs = [_pair(data, number, line) for number, line in numbered_lines(data)]
    same = [_label(gold, number, line) for number, line in numbered_lines(gold)]
    if len(pairs) != len(same):
        raise UserError(f"{gold} has {len(same)} lines and {data.name} {len(pairs)}; line i of both is one pair")
    if not pairs:
        raise UserError(f"{data} is empty")
    digest = hashlib.sha256(data.read_bytes() + gold.read_bytes()).hexdigest()[:12]
    return WicSplit(split, [a for a, _ in pairs], [b for _, b in pairs], np.array(same), digest)


def _pair(path: Path, number: int, line: str) -> tuple[Place, Place]:
    fields = line.split("\t")
    if len(fields) != 5:
        raise UserError(
            f"{path} line {number} has {len(fields)} fields in place of 5 (word, part of speech, i-j, sentence, "
            "sentence); is it cut?"
        )
    found = re.fullmatch(r"([0-9]{1,6})-([0-9]{1,6})", fields[2])
    if not found:
        raise UserError(f"{path} line {number} has the places {fields[2]!r}; two numbers as in 3-0 are wanted")
    first, second = (
        _place(path, number, text, int(index)) for text, index in zip(fields[3:], found.groups(), strict=True)
    )
    return first, second


def _place(path: Path, number: int, text: str, index: int) -> Place:
    tokens = text.split(" ")
    if index >= len(tokens) or not tokens[index]:
        raise UserError(f"{path} line {number} has no token {index} in {text!r}; places count from 0, between spaces")
    start = sum(len(token) + 1 for token in tokens[:index])
    return Place(text, start, start + len(tokens[index]))


def _label(path: Path, number: int, line: str) -> bool:
    if line.strip() not in ("T", "F"):
        raise UserError(f"{path} line {number} has the label {line!r}; T or F is wanted")
    return line.strip() == "T"
