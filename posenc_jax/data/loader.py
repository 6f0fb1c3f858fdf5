"""Packed rows -> batches. The order is a pure function of (seed, step), so a run goes on at any step without replay."""

from collections.abc import Iterator

import grain.python as pygrain
import numpy as np

from posenc_jax.data.rows import RowsInfo, decode_row

Batch = dict[str, np.ndarray]


class RowSource:
    """Random access to the rows of a split: int32 "tokens", "segments" [L] and "row", the row's number.

    "positions" [L] come with them where rows hold several documents; elsewhere the slots are the positions.
    """

    def __init__(self, info: RowsInfo, split: str) -> None:
        self._records = pygrain.ArrayRecordDataSource([str(path) for path in info.shard_paths(split)])
        self._length = info.length
        self._restarts = info.packing == "documents"

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, row: int) -> Batch:
        decoded = decode_row(self._records[row], self._length)
        if not self._restarts:
            del decoded["positions"]
        return {**decoded, "row": np.int32(row)}


def train_batches(
    info: RowsInfo,
    *,
    batch_size: int,
    seed: int,
    first_step: int = 0,
    prefetch: int = 8,
    process_index: int = 0,
    process_count: int = 1,
) -> Iterator[Batch]:
    """This process's share of the batches of steps `first_step`, `first_step + 1`, ... without end.

    Each epoch is a new permutation of all rows. Processes take neighbouring slices of the same global batch, and read
    only those: rows of different processes are disjoint and together are the batch of one process.
    """
    share = batch_size // process_count
    rows = pygrain.MapDataset.source(RowSource(info, "train")).seed(seed).shuffle().repeat()
    slices = rows.batch(share)[process_index::process_count]
    threads = pygrain.ReadOptions(num_threads=2, prefetch_buffer_size=prefetch)
    return iter(slices[first_step:].to_iter_dataset(threads))


def validation_batches(info: RowsInfo, *, batch_size: int, rows: int) -> list[Batch]:
    """The first `rows` held-out rows of a fixed permutation, the last batch filled up with padding."""
    source = RowSource(info, "validation")
    chosen = np.random.default_rng(0).permutation(len(source))[:rows]
    batches = []
    for start in range(0, len(chosen), batch_size):
        found = [source[int(row)] for row in chosen[start : start + batch_size]]
        empty = {name: np.zeros_like(value) for name, value in found[0].items()}
        found += [empty] * (batch_size - len(found))
        batches.append({name: np.stack([row[name] for row in found]) for name in empty})
    return batches
