"""Sentences for an encoder to read: of a source, of the run's own held-out rows, or of what is on every machine."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from posenc_jax.data.rows import TOKENIZER_FILE, read_rows_info
from posenc_jax.data.sentences import split_sentences
from posenc_jax.data.sources import KINDS, documents
from posenc_jax.data.tokenizer import SPECIALS, Tokenizer
from posenc_jax.evaluation.runs import Run

SENTENCES = 600
"""Enough for 300 pairs of words of different sentences, and read in seconds."""
FROM_ONE_DOCUMENT = 20
"""Sentences at most, so that no document decides."""
SHORTEST = 4
"""Words of a sentence at least."""
EVERYWHERE = "docstrings:"


@dataclasses.dataclass(frozen=True)
class Texts:
    """Sentences, and where they are from."""

    sentences: list[str]
    origin: str


def texts_for(run: Run, source: str | None = None, count: int = SENTENCES) -> Texts:
    """At most `count` sentences of a source as `prepare` takes it, or of a file; without one, of the run's held-out
    rows, or where these are gone of the documentation of installed packages.

    Raises `UserError` for a source or rows that cannot be read.
    """
    if source is not None:
        source = source_of(source)
        return Texts(_sentences(source, count), source)
    if run.config.data.path and Path(run.config.data.path).is_dir():
        return Texts(_held_out(Path(run.config.data.path), count), f"held-out rows of {run.config.data.path}")
    return Texts(_sentences(EVERYWHERE, count), f"{EVERYWHERE}, the documentation of installed packages")


def source_of(words: str) -> str:
    """A source, or a bare path as the source its name says: .jsonl and .ndjson are jsonl:, all else is text:."""
    if words.partition(":")[0] in KINDS:
        return words
    lines = {".jsonl", ".ndjson"} & set(Path(words).suffixes)
    return f"{'jsonl' if lines else 'text'}:{words}"


def _sentences(source: str, count: int) -> list[str]:
    found: list[str] = []
    for document in documents(source, Counter()):
        found += [one for one in split_sentences(document) if len(one.split()) >= SHORTEST][:FROM_ONE_DOCUMENT]
        if len(found) >= count:
            break
    return found[:count]


def _held_out(path: Path, count: int) -> list[str]:
    from posenc_jax.data.loader import RowSource

    info = read_rows_info(path)
    rows, tokenizer = RowSource(info, "validation"), Tokenizer.load(path / TOKENIZER_FILE)
    found: list[str] = []
    for row in np.random.default_rng(0).permutation(len(rows)):
        pieces = map(tokenizer.decode, _between_specials(rows[int(row)]["tokens"]))
        found += [piece for piece in pieces if len(piece.split()) >= SHORTEST]
        if len(found) >= count:
            break
    return found[:count]


def _between_specials(tokens_L: np.ndarray) -> Iterator[list[int]]:
    """What lies between [CLS] and [SEP], [SEP] and [SEP]: a sentence, or a document's piece."""
    piece: list[int] = []
    ends = {number for name, number in SPECIALS.items() if name not in ("[UNK]", "[MASK]")}
    for token in tokens_L.tolist():
        if token in ends:
            if piece:
                yield piece
            piece = []
        else:
            piece.append(token)
    if piece:
        yield piece
