"""What becomes of each document: the first pass of `prepare` over the source, and the blocks of the second.

Both are functions of the corpus alone: which documents are held out, what is a duplicate, where a block ends.
"""

import dataclasses
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from posenc_jax.data.progress import Progress
from posenc_jax.data.rows import SPLITS, write_whole
from posenc_jax.data.sources import documents, source_list
from posenc_jax.errors import UserError

SAMPLE_CHARACTERS = 40_000_000  # text the tokenizer is trained on at most; bounds its time and memory
DUPLICATES = "exact duplicates of an earlier document"
TRAIN, VALIDATION, DROPPED = 0, 1, 2  # what becomes of a document; the first two index SPLITS


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the first pass found out; saved, so that a run that goes on need not read everything twice."""

    roles: np.ndarray
    """uint8 [documents]: TRAIN, VALIDATION or DROPPED."""
    characters: int
    """Of the documents that are not dropped."""
    skipped: dict[str, int]

    def save(self, file: Path) -> None:
        content = io.BytesIO()
        np.savez(content, roles=self.roles, rest=json.dumps({"characters": self.characters, "skipped": self.skipped}))
        write_whole(file, content.getvalue())

    @classmethod
    def load(cls, file: Path) -> "Plan":
        with np.load(file) as saved:
            return cls(saved["roles"], **json.loads(str(saved["rest"])))


def scan(source: str | Sequence[str], holdout: float, report: Progress) -> tuple[Plan, list[str]]:
    """The plan, and an evenly spaced sample of at most `SAMPLE_CHARACTERS` (and one document) of text."""
    skipped: Counter = Counter()
    hashes, sizes = bytearray(), bytearray()  # 8 bytes a document each, all that is remembered of it
    sample: list[tuple[int, str]] = []
    sampled, every = 0, 1
    for number, text in enumerate(documents(source, skipped)):
        hashes += hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
        sizes += len(text).to_bytes(8, "little")
        if number % every == 0:
            sample.append((number, text))
            sampled += len(text)
        while sampled > SAMPLE_CHARACTERS and len(sample) > 1:
            every *= 2
            sample = [(at, kept) for at, kept in sample if at % every == 0]
            sampled = sum(len(kept) for _, kept in sample)
        if number % 256 == 0:
            report("reading documents", number, None)
    roles = _roles(np.frombuffer(hashes, "<u8"), holdout)
    if duplicates := int((roles == DROPPED).sum()):
        skipped[DUPLICATES] = duplicates
    characters = int(np.frombuffer(sizes, "<u8")[roles != DROPPED].sum())
    return Plan(roles, characters, dict(skipped)), [text for _, text in sample]


def _roles(hashes_D: np.ndarray, holdout: float) -> np.ndarray:
    """uint8 [documents]: later duplicates dropped, every 1/holdout-th of the rest held out, at least one of two."""
    _, first = np.unique(hashes_D, return_index=True)
    kept = np.sort(first)
    roles = np.full(len(hashes_D), DROPPED, np.uint8)
    roles[kept] = TRAIN
    every = round(1 / holdout)
    held_out = kept[every // 2 :: every]
    if len(kept) > 1:
        roles[held_out if len(held_out) else kept[-1:]] = VALIDATION
    return roles


def block_characters(characters: int) -> int:
    """Text of a shard: 16 shards or more from a small corpus so that many workers have work, about 512 from a large."""
    return max(min(max(characters // 16, 250_000), 4_000_000), min(characters // 512, 64_000_000))


def blocks(source: str | Sequence[str], plan: Plan, size: int) -> Iterator[tuple[str, int, list[str]]]:
    """(split, number, texts), of at least `size` characters but for the last of a split, in the order of the source."""
    texts: dict[str, list[str]] = {split: [] for split in SPLITS}
    sizes: Counter = Counter()
    numbers: Counter = Counter()
    for split, text in _split(source, plan):
        texts[split].append(text)
        sizes[split] += len(text)
        if sizes[split] >= size:
            yield split, numbers[split], texts[split]
            texts[split], sizes[split] = [], 0
            numbers[split] += 1
    for split in SPLITS:
        if texts[split]:
            yield split, numbers[split], texts[split]


def _split(source: str | Sequence[str], plan: Plan) -> Iterator[tuple[str, str]]:
    only_one = (plan.roles != DROPPED).sum() == 1
    number = -1
    for number, text in enumerate(documents(source, Counter())):
        if number >= len(plan.roles):
            break
        if plan.roles[number] == DROPPED:
            continue
        if only_one:
            head, tail = _cut_tail(text)
            yield SPLITS[TRAIN], head
            yield SPLITS[VALIDATION], tail
        else:
            yield SPLITS[plan.roles[number]], text
    if number + 1 != len(plan.roles):
        text = " ".join(source_list(source))
        raise UserError(f"the text of {text} changed while it was read; prepare into a new folder")


def _cut_tail(text: str) -> tuple[str, str]:
    """About the last tenth of a text apart, cut at the end of a line, a sentence or a word."""
    least = len(text) * 8 // 10
    for mark in ("\n", ". ", " "):
        cut = text.find(mark, len(text) * 9 // 10)
        cut = cut if 0 <= cut < len(text) - len(mark) else text.rfind(mark, least, len(text) - len(mark))
        if cut > 0:
            return text[: cut + len(mark)], text[cut + len(mark) :]
    return text[:least], text[least:]
