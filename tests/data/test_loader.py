import itertools

import numpy as np
import pytest

from posenc_jax.data.loader import train_batches, validation_batches
from tests.tiny_rows import write_rows


@pytest.fixture(scope="module")
def info(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows"), train=50, validation=13)


def take(info, steps, **settings):
    settings = {"batch_size": 8, "seed": 3, **settings}
    return list(itertools.islice(train_batches(info, **settings), steps))


def assert_equal(batches, others):
    for batch, other in zip(batches, others, strict=True):
        assert batch.keys() == other.keys()
        for name in batch:
            np.testing.assert_array_equal(batch[name], other[name])


def test_any_step_is_reached_without_the_steps_before_it(info):
    whole = take(info, 40)
    for first in (1, 17, 39):
        assert_equal(take(info, 40 - first, first_step=first), whole[first:])


def test_every_row_comes_once_an_epoch_in_another_order_each_time(info):
    order = np.concatenate([batch["row"] for batch in take(info, 25)])
    epochs = order[:200].reshape(4, 50)
    for epoch in epochs:
        assert sorted(epoch) == list(range(50))
    assert (epochs[0] != epochs[1]).any()
    assert (np.concatenate([b["row"] for b in take(info, 7, seed=4)]) != order[:56]).any()


@pytest.mark.parametrize("count", [2, 4])
def test_processes_read_disjoint_shares_of_the_same_global_batch(info, count):
    whole = take(info, 9)
    shares = [take(info, 9, process_index=index, process_count=count) for index in range(count)]
    joined = [{name: np.concatenate([s[step][name] for s in shares]) for name in whole[0]} for step in range(9)]
    assert_equal(joined, whole)


def test_rows_come_as_they_were_written(info):
    for batch in take(info, 3):
        for row, tokens in zip(batch["row"], batch["tokens"], strict=True):
            assert tokens[1] == 5 + row % 20
        assert batch["tokens"].dtype == batch["segments"].dtype == np.int32
        assert "positions" not in batch


def test_positions_come_where_rows_hold_several_documents(tmp_path):
    packed = write_rows(tmp_path, train=9, validation=3, packing="documents")
    batch = take(packed, 1, batch_size=4)[0]
    np.testing.assert_array_equal(batch["positions"][0][:6], [0, 1, 2, 0, 1, 2])


def test_validation_rows_are_always_the_same_and_the_last_batch_is_filled_with_padding(info):
    first, second = (validation_batches(info, batch_size=8, rows=100) for _ in range(2))
    assert_equal(first, second)
    segments = np.concatenate([batch["segments"] for batch in first])
    assert len(segments) == 16 and (segments.max(1) > 0).sum() == 13
    assert len(validation_batches(info, batch_size=8, rows=5)) == 1
