"""Texts to batches for fine-tuning: tokens once, grouped by length into few shapes, nothing dropped.

A row is `[CLS] A [SEP]`. A pair is `[CLS] A [SEP] [SEP] B [SEP]`, one segment without types (RoBERTa's form, which TUPE
uses), or where the model has token types BERT's `[CLS] A [SEP] B [SEP]`, type 0 to the first [SEP] and 1 after it.
The number of [SEP]s can be set. Whoever is too long loses words at its end, the longer of a pair first.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from posenc_jax.data.tasks import Examples
from posenc_jax.data.wordpiece import AnyTokenizer

SHORTEST = 16
"""Slots of the shortest shape; the others double up to the model's limit."""
LEAST_SHARE = 0.1
"""A shape that fewer of the examples would use is not worth its compilation; they go to the next longer one."""

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Examples that share a shape."""

    tokens_NxL: np.ndarray
    lengths_N: np.ndarray
    """Slots that are not padding."""
    types_NxL: np.ndarray | None
    """Which text of a pair a slot is of, where the model has token types."""
    labels_N: np.ndarray
    index_N: np.ndarray
    """Place of each in the split."""

    def __len__(self) -> int:
        return len(self.index_N)


def encode(
    examples: Examples, tokenizer: AnyTokenizer, limit: int, types: bool = False, separators: int | None = None
) -> tuple[list[list[int]], list[int]]:
    """Token ids of each example, at most `limit`, and where text B begins; `separators` between the texts of a pair
    are by default one with `types`, BERT's form, else two."""
    cls, sep = tokenizer.cls, tokenizer.sep
    rows_a = tokenizer.encode_batch(examples.texts_a)
    if examples.texts_b is None:
        rows = [[cls, *a[: limit - 2], sep] for a in rows_a]
        return rows, [len(row) for row in rows]
    between = [sep] * (separators or (1 if types else 2))
    rows, starts = [], []
    for a, b in zip(rows_a, tokenizer.encode_batch(examples.texts_b), strict=True):
        a, b = truncate_pair(a, b, limit - 2 - len(between))
        starts.append(1 + len(a) + len(between))
        rows.append([cls, *a, *between, *b, sep])
    return rows, starts


def truncate_pair(a: list[int], b: list[int], room: int) -> tuple[list[int], list[int]]:
    """Cuts the ends until both fit into `room` together, always from the longer; of two equal ones, B."""
    if len(a) + len(b) <= room:
        return a, b
    if len(a) < len(b):
        kept = min(len(a), room - room // 2)
        return a[:kept], b[: room - kept]
    kept = min(len(b), room // 2)
    return a[: room - kept], b[:kept]


def make_buckets(
    examples: Examples, tokenizer: AnyTokenizer, limit: int, types: bool = False, separators: int | None = None
) -> list[Bucket]:
    """The split as arrays, one group for each length of 16, 32, 64, ... `limit` that enough of the examples want.

    Labels of a test split, which has none, are 0."""
    rows, starts = encode(examples, tokenizer, limit, types, separators)
    labels_N = np.zeros(len(rows), np.int32) if examples.labels is None else examples.labels
    starts_N = np.array(starts)
    lengths_N = np.array([len(row) for row in rows])
    buckets, low = [], 0
    for slots in choose_lengths(lengths_N, limit):
        index_N = np.flatnonzero((low < lengths_N) & (lengths_N <= slots))
        low = slots
        tokens_NxL = np.full((len(index_N), slots), tokenizer.pad, np.int32)
        for row_L, index in zip(tokens_NxL, index_N, strict=True):
            row_L[: lengths_N[index]] = rows[index]
        types_NxL = None
        if types:  # padding is of type 0
            slot_1xL = np.arange(slots)[None]
            types_NxL = (starts_N[index_N, None] <= slot_1xL) & (slot_1xL < lengths_N[index_N, None])
        buckets.append(Bucket(tokens_NxL, lengths_N[index_N], types_NxL, labels_N[index_N], index_N))
    return buckets


def choose_lengths(lengths_N: np.ndarray, limit: int) -> list[int]:
    """Shapes, ascending, of which each takes in at least `LEAST_SHARE` of the examples and the last takes the rest."""
    doubled = [SHORTEST]
    while doubled[-1] < limit:
        doubled.append(doubled[-1] * 2)
    candidates = [min(slots, limit) for slots in doubled]
    longest = next(slots for slots in candidates if slots >= lengths_N.max())
    chosen, low = [], 0
    for slots in candidates[: candidates.index(longest)]:
        if np.mean((low < lengths_N) & (lengths_N <= slots)) >= LEAST_SHARE:
            chosen.append(slots)
            low = slots
    return [*chosen, longest]


def steps_per_epoch(buckets: Sequence[Bucket], batch_size: int) -> int:
    return sum(-(-len(bucket) // batch_size) for bucket in buckets)


def training_batches(buckets: Sequence[Bucket], batch_size: int, epochs: int, seed: int) -> Iterator[Batch]:
    """All examples once an epoch, each batch of one length, in an order that is a function of (seed, epoch)."""
    for epoch in range(epochs):
        rng = np.random.default_rng((seed, epoch))
        slices = [(bucket, part) for bucket in buckets for part in _slices(rng.permutation(len(bucket)), batch_size)]
        for number in rng.permutation(len(slices)):
            yield _batch(*slices[number], batch_size, seed)


def evaluation_batches(buckets: Sequence[Bucket], batch_size: int) -> Iterator[tuple[np.ndarray, Batch]]:
    """Every example once, with the places in the split of a batch's first rows; further rows have weight 0."""
    for bucket in buckets:
        for part in _slices(np.arange(len(bucket)), batch_size):
            yield bucket.index_N[part], _batch(bucket, part, batch_size, 0)


def _slices(order_N: np.ndarray, batch_size: int) -> list[np.ndarray]:
    return [order_N[start : start + batch_size] for start in range(0, len(order_N), batch_size)]


def _batch(bucket: Bucket, part: np.ndarray, batch_size: int, seed: int) -> Batch:
    """Rows `part` of the bucket, filled up to `batch_size` with its first row at weight 0."""
    rows_B = np.zeros(batch_size, np.int64)
    rows_B[: len(part)] = part
    slot_1xL = np.arange(bucket.tokens_NxL.shape[1])[None]
    types = {} if bucket.types_NxL is None else {"types": bucket.types_NxL[rows_B].astype(np.int32)}
    return {
        "tokens": bucket.tokens_NxL[rows_B],
        "segments": (slot_1xL < bucket.lengths_N[rows_B, None]).astype(np.int32),
        **types,
        "labels": bucket.labels_N[rows_B],
        "weight": (np.arange(batch_size) < len(part)).astype(np.float32),
        "seed": np.full(batch_size, seed, np.uint32),
    }
