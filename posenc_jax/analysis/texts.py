"""Texts as rows of ids whose every slot says what it is: special token, word of which number, punctuation.

Rows run in batches of a few fixed shapes. Shape letters: B rows of a batch, L slots.
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from posenc_jax.analysis.mean_vectors import BATCH_TOKENS, SHORTEST
from posenc_jax.data.wordpiece import AnyTokenizer


@functools.cache
def _words_of() -> re.Pattern:
    """Accents and vowel signs of their own (Unicode's marks) are part of the letter before them."""
    marks = "".join(char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(char)[0] == "M")
    run = rf"(?:\w[{re.escape(marks)}]*)+"
    return re.compile(rf"{run}(?:['’]{run})*|[^\w\s]")


class MarkedText(NamedTuple):
    """One row, `[CLS] words [SEP]`."""

    sentence: int
    """Number of the text among all that were read."""
    ids_L: np.ndarray
    word_L: np.ndarray
    """Number of the slot's word in `words`; -1 for [CLS] and [SEP]."""
    special_L: np.ndarray
    punctuation_L: np.ndarray
    words: tuple[str, ...]
    """All of the text, those that were cut off too."""


class Batch(NamedTuple):
    """Rows of one shape; the first are `texts`, those beyond repeat the first of them."""

    tokens_BxL: np.ndarray
    segments_BxL: np.ndarray
    """0 at padding, else 1."""
    texts: tuple[MarkedText, ...]


def mark_texts(tokenizer: AnyTokenizer, texts: Iterable[str], length: int) -> Iterator[MarkedText]:
    """Each text as a row of at most `length` slots, its end cut off; a text without a word is passed over.

    A word is a run of letters with their accents and digits, apostrophes within, or one other character that is no
    white space (our choice: the papers do not say). A subword belongs to the word that its first character is of; where
    a tokenizer joins words in one piece, those after the first have no slot. Raises `ValueError` for what is no text.
    """
    if isinstance(texts, str):
        raise ValueError(f"texts={texts[:40]!r} is one text, not a list of them")
    room = length - 2
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {number} is {text!r}, no text")
        spans = [match.span() for match in _words_of().finditer(text)]
        ids, offsets = tokenizer.encode_with_offsets(text)
        if not spans or not ids:
            continue
        begins_L, ends_W = np.array(offsets[:room])[:, 0], np.array(spans)[:, 1]
        # White space lies between words: a subword that begins with it is of the word that follows.
        word_L = np.minimum(np.searchsorted(ends_W, begins_L, side="right"), len(spans) - 1)
        words = tuple(text[start:end] for start, end in spans)
        is_mark_W = np.array([not any(map(str.isalnum, word)) for word in words])
        special_L = np.zeros(len(word_L) + 2, bool)
        special_L[[0, -1]] = True
        yield MarkedText(
            sentence=number,
            ids_L=np.array([tokenizer.cls, *ids[:room], tokenizer.sep], np.int32),
            word_L=np.pad(word_L, 1, constant_values=-1).astype(np.int32),
            special_L=special_L,
            punctuation_L=np.pad(is_mark_W[word_L], 1),
            words=words,
        )


def sample_texts(texts: Iterable[str], count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """`count` of the texts, each set of that size as likely, in their order, and their numbers; all where there are
    no more. One pass that keeps `count` texts (Vitter 1985, algorithm R)."""
    rng = np.random.default_rng(seed)
    kept: list[tuple[int, str]] = []
    for number, text in enumerate(texts):
        if len(kept) < count:
            kept.append((number, text))
        elif (place := int(rng.integers(number + 1))) < count:
            kept[place] = (number, text)
    kept.sort()
    return [text for _, text in kept], np.array([number for number, _ in kept], np.int64)


def batches(texts: Iterable[MarkedText], length: int, batch_tokens: int = BATCH_TOKENS) -> Iterator[Batch]:
    """The texts in shapes of 16, 32, 64, ... `length` slots, about `batch_tokens` slots a batch, in one pass.

    A batch leaves when it is full, so that texts come in another order; what is left at the end makes batches of an
    eighth. Raises `ValueError` for a text longer than `length`.
    """
    waiting: dict[int, list[MarkedText]] = {}
    for text in texts:
        if len(text.ids_L) > length:
            raise ValueError(f"text {text.sentence} has {len(text.ids_L)} slots, more than {length}")
        slots = SHORTEST
        while slots < len(text.ids_L):
            slots *= 2
        slots = min(slots, length)
        rows = waiting.setdefault(slots, [])
        rows.append(text)
        if len(rows) >= batch_tokens // slots:
            yield _batch(waiting.pop(slots), slots, len(rows))
    for slots, rows in sorted(waiting.items()):
        size = max(1, batch_tokens // slots // 8)
        for start in range(0, len(rows), size):
            yield _batch(rows[start : start + size], slots, size)


def _batch(texts: list[MarkedText], slots: int, size: int) -> Batch:
    tokens_BxL, segments_BxL = (np.zeros((size, slots), np.int32) for _ in range(2))
    for row in range(size):
        ids_L = texts[row if row < len(texts) else 0].ids_L
        tokens_BxL[row, : len(ids_L)] = ids_L
        segments_BxL[row, : len(ids_L)] = 1
    return Batch(tokens_BxL, segments_BxL, tuple(texts))
