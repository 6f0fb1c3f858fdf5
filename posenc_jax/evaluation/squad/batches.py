"""Windows of questions to batches of few static shapes; nothing is dropped."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from posenc_jax.data.spans import Window
from posenc_jax.data.squad import Question
from posenc_jax.evaluation.glue.batches import Batch, choose_lengths


@dataclasses.dataclass(frozen=True)
class WindowBucket:
    """Windows that share a shape. What follows from two numbers a row (segments, types) is made with the batch."""

    tokens_NxL: np.ndarray
    lengths_N: np.ndarray
    """Slots that are not padding."""
    first_slot_N: np.ndarray
    """Where the passage begins."""
    start_N: np.ndarray
    end_N: np.ndarray
    impossible_N: np.ndarray
    index_N: np.ndarray
    """Place of each in the list of windows."""

    def __len__(self) -> int:
        return len(self.index_N)


def make_window_buckets(
    windows: Sequence[Window], questions: Sequence[Question], pad: int, limit: int
) -> list[WindowBucket]:
    """One group for each length of 16, 32, ... `limit` that enough of the windows want."""
    lengths_N = np.array([len(window.ids) for window in windows])
    buckets, low = [], 0
    for slots in choose_lengths(lengths_N, limit):
        index_N = np.flatnonzero((low < lengths_N) & (lengths_N <= slots))
        low = slots
        chosen = [windows[index] for index in index_N]
        tokens_NxL = np.full((len(chosen), slots), pad, np.int32)
        for row_L, window in zip(tokens_NxL, chosen, strict=True):
            row_L[: len(window.ids)] = window.ids
        buckets.append(
            WindowBucket(
                tokens_NxL=tokens_NxL,
                lengths_N=lengths_N[index_N],
                first_slot_N=np.array([window.first_slot for window in chosen], np.int32),
                start_N=np.array([window.start for window in chosen], np.int32),
                end_N=np.array([window.end for window in chosen], np.int32),
                impossible_N=np.array([questions[window.question].impossible for window in chosen], np.int32),
                index_N=index_N,
            )
        )
    return buckets


def training_batches(
    buckets: Sequence[WindowBucket], batch_size: int, epochs: int, seed: int, types: bool
) -> Iterator[Batch]:
    """All windows once an epoch, each batch of one length, in an order that is a function of (seed, epoch)."""
    for epoch in range(epochs):
        rng = np.random.default_rng((seed, epoch))
        slices = [(bucket, part) for bucket in buckets for part in _slices(rng.permutation(len(bucket)), batch_size)]
        for number in rng.permutation(len(slices)):
            yield _batch(*slices[number], batch_size, seed, types)


def search_batches(buckets: Sequence[WindowBucket], batch_size: int, types: bool) -> Iterator[tuple[np.ndarray, Batch]]:
    """Every window once, with the places in the list of a batch's first rows; further rows only fill up."""
    for bucket in buckets:
        for part in _slices(np.arange(len(bucket)), batch_size):
            yield bucket.index_N[part], _batch(bucket, part, batch_size, 0, types)


def _slices(order_N: np.ndarray, batch_size: int) -> list[np.ndarray]:
    return [order_N[start : start + batch_size] for start in range(0, len(order_N), batch_size)]


def _batch(bucket: WindowBucket, part: np.ndarray, batch_size: int, seed: int, types: bool) -> Batch:
    """Rows `part` of the bucket, filled up to `batch_size` with its first row at weight 0.

    An answer may start or end in the passage, at the [SEP] behind it as in the published mask, and at [CLS].
    """
    rows_B = np.zeros(batch_size, np.int64)
    rows_B[: len(part)] = part
    slot_1xL = np.arange(bucket.tokens_NxL.shape[1])[None]
    used_BxL = slot_1xL < bucket.lengths_N[rows_B, None]
    passage_BxL = used_BxL & (slot_1xL >= bucket.first_slot_N[rows_B, None])
    return {
        "tokens": bucket.tokens_NxL[rows_B],
        "segments": used_BxL.astype(np.int32),
        **({"types": passage_BxL.astype(np.int32)} if types else {}),
        "allowed": (passage_BxL | (slot_1xL == 0)).astype(np.int32),
        "start": bucket.start_N[rows_B],
        "end": bucket.end_N[rows_B],
        "impossible": bucket.impossible_N[rows_B],
        "weight": (np.arange(batch_size) < len(part)).astype(np.float32),
        "seed": np.full(batch_size, seed, np.uint32),
    }
