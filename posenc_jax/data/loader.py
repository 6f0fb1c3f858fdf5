"""Packed rows -> batches. The order is a pure function of (seed, step), so a run goes on at any step without replay."""

from collections.abc import Iterator

import grain.python as pygrain
import numpy as np

from posenc_jax.data.rows import RowsInfo, decode_row
from posenc_jax.errors import UserError

Batch = dict[str, np.ndarray]


class RowSource:
    """Random access to the rows of a split: int32 "tokens", "segments" [L] and "row", the row's number.

    "positions" [L] come with them where rows hold several documents; elsewhere the slots are the positions.
    """

    def __init__(self, info: RowsInfo, split: str) -> None:
        self._files = ", ".join(path.name for path in info.shard_paths(split))
        self._folder = info.path
        try:
            self._records = pygrain.ArrayRecordDataSource([str(path) for path in info.shard_paths(split)])
            found = len(self._records)
        except Exception as error:  # whatever the reader makes of a damaged file
            raise self._damaged(str(error)) from error
        if found != getattr(info, split).rows:
            raise self._damaged(f"{found} rows in place of {getattr(info, split).rows}")
        self._length = info.length
        self._restarts = info.packing == "documents"

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, row: int) -> Batch:
        try:
            record = self._records[row]
        except Exception as error:
            raise self._damaged(f"row {row}: {error}") from error
        decoded = decode_row(record, self._length)
        if not self._restarts:
            del decoded["positions"]
        return {**decoded, "row": np.int32(row)}

    def _damaged(self, why: str) -> UserError:
        why = why.splitlines()[0][:200]
        return UserError(f"{self._folder} is damaged in {self._files} ({why}); run `prepare` into a new folder")


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
    slices = rows.batch(share, drop_remainder=True)[process_index::process_count]
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
