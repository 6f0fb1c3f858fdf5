"""Probe tasks made from any text, in the GLUE file layout: what does an encoder know about where its words are?

*order*: a sentence as it is ("original"), or with two neighbouring words exchanged ("exchanged"). Both versions of a
sentence are in the same split, so whoever sees only which words there are, not where, is right exactly half the time.
The exchanged words are plain lower-case words, never the first or the last, so that no capital and no full stop out of
place tells.

*next*: two sentences of which the second follows the first in the text ("next"), or stands elsewhere in it, in most
cases in another document ("elsewhere"). So the topic helps, as in BERT's second task. From the same document alone it
would not, but such a probe a tiny encoder does not learn at all (tupe_r: 50.4 % against 57.4 % after one epoch), and
what nobody passes tells nothing. Two pairs exchange their seconds, so each sentence is first (or second) once in either
class, and neither half alone tells anything.

Train and dev come from different documents and share no sentence. Dev takes the documents first that `prepare` holds
out of the same text by default, then others: those an encoder has read, though never with these labels. What is chosen
is a function of text and seed.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from posenc_jax.data.tasks import TASKS
from posenc_jax.errors import UserError

DEV_EVERY, HELD_OUT_EVERY = 10, 50
"""Documents that are dev's, the middle one of each ten; and those among them that `prepare` holds out by default."""
SHORTEST, LONGEST = 5, 30
"""Words of a sentence: enough to have an inside, and about 100 subwords for a pair of the usual length."""

Row = tuple[str, ...]
"""Texts, then the label."""


def order_rows(sentence: str, seed: int) -> list[Row]:
    """The sentence and its exchanged version; none if it has no two words to exchange."""
    words = sentence.split(" ")
    places = _exchangeable(words)
    if not places:
        return []
    i = random.Random(f"{seed} {sentence}").choice(places)
    exchanged = [*words[:i], words[i + 1], words[i], *words[i + 2 :]]
    return [(sentence, "original"), (" ".join(exchanged), "exchanged")]


def _exchangeable(words: Sequence[str]) -> list[int]:
    """Places i at which words i and i + 1 may change places; none in a sentence too short or too long."""
    if not SHORTEST <= len(words) <= LONGEST:
        return []
    plain = [word.isalpha() and word.islower() for word in words]
    return [i for i in range(1, len(words) - 2) if plain[i] and plain[i + 1] and words[i] != words[i + 1]]


def next_pairs(sentences: Sequence[str], seed: int) -> Iterator[Row]:
    """Neighbours in one document, no sentence in two pairs: so no first precedes the second of another pair."""
    start = random.Random(f"{seed} {' '.join(sentences[:2])}").randrange(2)
    for first, second in zip(sentences[start::2], sentences[start + 1 :: 2], strict=False):
        if first != second and all(SHORTEST <= text.count(" ") + 1 <= LONGEST for text in (first, second)):
            yield first, second


def next_rows(pairs: Sequence[Row]) -> list[Row]:
    """Every two pairs as they are, and with their seconds exchanged; an odd one at the end is left out."""
    rows = []
    for (a, b), (c, d) in zip(pairs[::2], pairs[1::2], strict=False):
        if len({a, b, c, d}) == 4:
            rows += [(a, b, "next"), (c, d, "next"), (a, d, "elsewhere"), (c, b, "elsewhere")]
    return rows


def write_probes(
    documents: Iterable[Sequence[str]], out: str | Path, *, rows: int = 20_000, dev_rows: int = 2_000, seed: int = 0
) -> dict[str, dict[str, int]]:
    """Writes OUT/{order,next}/{train,dev}.tsv, at most so many rows each, half of them of each class.

    `documents` are lists of sentences; one pass is made over them. Returns the rows written, {"order": {"train": ...}}.
    Raises `UserError` when the text has no row for one of the files.
    """
    sizes = {"train": rows // 2, "dev": dev_rows // 2}  # a sentence and a pair both make two rows
    samples = {(name, split): _Sample(size, seed) for name in ("order", "next") for split, size in sizes.items()}
    for number, sentences in enumerate(_distinct(documents)):
        split = "dev" if number % DEV_EVERY == DEV_EVERY // 2 else "train"
        rank = 0 if number % HELD_OUT_EVERY == HELD_OUT_EVERY // 2 else 1
        for sentence in sentences:
            if _exchangeable(sentence.split(" ")):
                samples["order", split].add((sentence,), rank)
        for pair in next_pairs(sentences, seed):
            samples["next", split].add(pair, rank)
    written: dict[str, dict[str, int]] = {}
    for name in ("order", "next"):
        dev, train = samples[name, "dev"].units(), samples[name, "train"].units()
        seen = {sentence.lower() for unit in dev for sentence in unit}
        train = [unit for unit in train if seen.isdisjoint(map(str.lower, unit))]
        written[name] = {}
        for split, units in (("train", train), ("dev", dev)):
            table = next_rows(units) if name == "next" else [row for unit in units for row in order_rows(unit[0], seed)]
            written[name][split] = _write(Path(out), name, split, table, seed)
    return written


def _distinct(documents: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Documents without repetitions, as `prepare` counts them, white space in a sentence being one space."""
    seen = set()
    for document in documents:
        sentences = [" ".join(sentence.split()) for sentence in document]
        digest = hashlib.blake2b("\n".join(sentences).encode(), digest_size=8).digest()
        if digest not in seen:
            seen.add(digest)
            yield sentences


class _Sample:
    """The `size` units of least (rank, hash): in each rank a uniform sample of distinct units, in one pass and bounded
    memory."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self.kept: dict[bytes, tuple[int, bytes, Row]] = {}

    def add(self, unit: Row, rank: int) -> None:
        text = "\t".join((str(self.seed), *unit)).lower()  # the tokenizer folds case, so two such sentences are one
        key = hashlib.blake2b(text.encode(), digest_size=16).digest()
        self.kept[key] = min(self.kept.get(key, (rank, key, unit)), (rank, key, unit))
        if len(self.kept) > 2 * self.size + 1000:
            self._prune()

    def units(self) -> list[Row]:
        self._prune()
        return [unit for _, _, unit in self.kept.values()]

    def _prune(self) -> None:
        self.kept = {entry[1]: entry for entry in sorted(self.kept.values())[: self.size]}


def _write(out: Path, name: str, split: str, table: list[Row], seed: int) -> int:
    if not table:
        raise UserError(
            f"the text has too few sentences for the {split} rows of the {name} probe; it takes {DEV_EVERY} documents "
            f"or more, with sentences of {SHORTEST} to {LONGEST} words"
        )
    random.Random(f"{seed} {name} {split}").shuffle(table)
    task, path = TASKS[name], out / name / f"{split}.tsv"
    lines = ["\t".join((*task.texts, task.label)), *("\t".join(row) for row in table)]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    part.replace(path)
    return len(table)
