"""Between characters and tokens, and between a long text and the windows that fit a model.

A token of a text is known by its characters [start, end). A predicted answer is cut out of the text as it was written;
nothing is put together again from tokens, so case, accents and spaces are the author's.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from posenc_jax.data.squad import Question
from posenc_jax.data.wordpiece import AnyTokenizer

Offsets = Sequence[tuple[int, int]]

MAX_QUERY = 64
"""Tokens of a question that are read (convbert_and_electra.md 5)."""


@dataclasses.dataclass(frozen=True)
class Passage:
    """A tokenized context."""

    text: str
    ids: Sequence[int]
    offsets: Offsets
    """Characters [start, end) of each token, without white space at either end; empty where a token has none."""

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """First and last token of the least span that holds characters [start, end); None where no token does."""
        inside = [i for i, (a, b) in enumerate(self.offsets) if a < b and b > start and a < end]
        return (inside[0], inside[-1]) if inside else None

    def cut(self, first: int, last: int) -> str:
        """The text of tokens `first` to `last`, as it was written."""
        return self.text[self.offsets[first][0] : self.offsets[last][1]].strip()


def tokenize(text: str, tokenizer: AnyTokenizer) -> Passage:
    ids, offsets = tokenizer.encode_with_offsets(text)
    return Passage(text, ids, [_trim(text, start, end) for start, end in offsets])


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    return start + left, start + max(left, len(piece.rstrip()))


@dataclasses.dataclass(frozen=True)
class Window:
    """One row: `[CLS] question [SEP] part of the passage [SEP]`, two [SEP] between the texts without token types."""

    question: int
    """Place of the question in the file."""
    ids: Sequence[int]
    first_slot: int
    """Slot of the part's first token."""
    first_token: int
    """That token's place in the passage."""
    tokens: int
    """Tokens of the passage in this part."""
    owned: np.ndarray
    """[tokens] bool: no other window of the question shows that token with more context."""
    start: int = 0
    end: int = 0
    """Slots of the answer's first and last token; 0, [CLS], where this window does not hold it whole."""


def window_parts(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """(first token, tokens) of windows of at most `room` that begin `stride` <= `room` apart and cover all `tokens`."""
    parts, first = [], 0
    while True:
        size = min(room, tokens - first)
        parts.append((first, size))
        if first + size >= tokens:
            return parts
        first += stride


def owners(parts: Sequence[tuple[int, int]], tokens: int) -> np.ndarray:
    """[tokens] window with the most context of each token, the larger min(left, right) + 0.01 * size; of equal ones the
    first (convbert_and_electra.md 5)."""
    first_Wx1, size_Wx1 = (np.array(column)[:, None] for column in zip(*parts, strict=True))
    left_WxT = np.arange(tokens)[None] - first_Wx1
    right_WxT = size_Wx1 - 1 - left_WxT
    score_WxT = np.minimum(left_WxT, right_WxT) + 0.01 * size_Wx1
    return np.where((left_WxT >= 0) & (right_WxT >= 0), score_WxT, -np.inf).argmax(0)


def make_windows(
    questions: Sequence[Question], tokenizer: AnyTokenizer, limit: int, stride: int, types: bool, train: bool
) -> tuple[list[Window], list[Passage]]:
    """All windows in file order, none longer than `limit`, and the passage of each question.

    A question gives at most 64 tokens and half of the row, and windows overlap by half at least (our choices, for rows
    shorter than the published 512). With `train` the first answer
    that has a place is the one to learn, and a question of which none has is left out; else answers are not looked at.
    """
    between = [tokenizer.sep] if types else [tokenizer.sep, tokenizer.sep]
    cache: dict[str, Passage] = {}
    windows, passages = [], []
    queries = tokenizer.encode_batch([question.text for question in questions])
    for number, (question, query) in enumerate(zip(questions, queries, strict=True)):
        if question.context not in cache:
            cache[question.context] = tokenize(question.context, tokenizer)
        passage = cache[question.context]
        passages.append(passage)
        answer = _to_learn(question, passage) if train else None
        if train and answer is None and not question.impossible:
            continue
        head = [tokenizer.cls, *query[: min(MAX_QUERY, limit // 2)], *between]
        windows += _windows(number, head, passage, limit - len(head) - 1, stride, tokenizer.sep, answer)
    return windows, passages


def _to_learn(question: Question, passage: Passage) -> tuple[int, int] | None:
    for answer in question.answers:
        if answer.start is not None and (span := passage.span(answer.start, answer.start + len(answer.text))):
            return span
    return None


def _windows(
    number: int,
    head: Sequence[int],
    passage: Passage,
    room: int,
    stride: int,
    sep: int,
    answer: tuple[int, int] | None,
) -> Iterator[Window]:
    parts = window_parts(len(passage.ids), room, min(stride, max(1, room // 2)))
    owner_T = owners(parts, len(passage.ids))
    for place, (first, size) in enumerate(parts):
        start = end = 0
        if answer and first <= answer[0] and answer[1] < first + size:
            start, end = (token - first + len(head) for token in answer)
        yield Window(
            question=number,
            ids=[*head, *passage.ids[first : first + size], sep],
            first_slot=len(head),
            first_token=first,
            tokens=size,
            owned=owner_T[first : first + size] == place,
            start=start,
            end=end,
        )
