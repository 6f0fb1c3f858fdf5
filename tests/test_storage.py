"""A bucket, played by a folder: etils' own paths, whose calls are led there."""

import json

import numpy as np
import pytest
from etils.epath import backend, gpath

from posenc_jax.config import Config
from posenc_jax.errors import UserError
from posenc_jax.storage import fetched, is_remote, place
from posenc_jax.training.trackers import JsonLines, TensorBoard, read_metrics
from posenc_jax.training.workdir import open_workdir, read_config
from tests.tiny_rows import write_rows


class Bucket:
    """gs://bucket/... in a folder; objects are written whole, never appended to or renamed."""

    def __init__(self, root):
        self._root = root

    def __getattr__(self, name):
        assert name not in ("rename", "replace"), "a bucket knows no such thing"

        def call(*args, **options):
            if name == "open":
                assert "a" not in args[1] and "+" not in args[1], "objects of a bucket cannot be appended to"
            here = [str(arg).replace("gs://bucket", str(self._root)) if isinstance(arg, str) else arg for arg in args]
            return getattr(backend.os_backend, name)(*here, **options)

        return call


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    root = tmp_path / "bucket"
    root.mkdir()
    monkeypatch.setattr(
        gpath._GPath, "_backend", property(lambda path: Bucket(root) if is_remote(path) else backend.os_backend)
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name == "gcsfs" else None)
    return root


@pytest.mark.parametrize(("path", "remote"), [("gs://b/x", True), ("s3://b/x", True), ("/x", False), ("x/y", False)])
def test_a_bucket_is_told_by_its_scheme(path, remote):
    assert is_remote(path) is remote


def test_a_bucket_that_cannot_be_reached_names_the_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"gs://b/run needs the package gcsfs; pip install gcsfs"):
        place("gs://b/run")
    with pytest.raises(UserError, match="hdfs://x is of no kind"):
        place("hdfs://x")


def test_a_workdir_in_a_bucket_is_opened_written_and_read_again(bucket, tmp_path):
    info = write_rows(tmp_path / "rows", train=20)
    workdir = place("gs://bucket/run")
    for _ in range(2):
        open_workdir(workdir, Config(), info).close()
    assert read_config("gs://bucket/run") == Config()
    assert {path.name for path in (bucket / "run").iterdir()} == {"config.json", "tokenizer.model", "rows.json"}


def test_metrics_in_a_bucket_are_whole_after_every_line_and_cut_at_a_restart(bucket):
    workdir = place("gs://bucket/run")
    workdir.mkdir()
    lines = JsonLines(workdir, 0)
    for step in (1, 2, 3):
        lines.write("train", step, {"loss": float(step)})
        assert json.loads((bucket / "run" / "metrics.jsonl").read_text().splitlines()[-1])["step"] == step
    lines.close()
    JsonLines(workdir, 2).close()
    assert [event["step"] for event in read_metrics("gs://bucket/run")] == [1, 2]


def test_tensorboard_events_arrive_in_a_bucket(bucket):
    workdir = place("gs://bucket/run")
    board = TensorBoard(workdir, 0)
    board.write("train", 1, {"loss": 1.0})
    board.close()
    (events,) = (bucket / "run" / "tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()


def test_rows_in_a_bucket_are_copied_to_a_disk_once(bucket, tmp_path):
    write_rows(bucket / "rows", train=20)
    here = fetched("gs://bucket/rows", tmp_path / "cache")
    names = {path.name for path in here.iterdir()}
    assert names == {path.name for path in (bucket / "rows").iterdir()}
    before = {path: path.stat().st_mtime_ns for path in here.iterdir()}
    shard = here / "train-00000.arrayrecord"
    shard.write_bytes(shard.read_bytes()[:10])  # a copy that was cut off
    assert fetched("gs://bucket/rows", tmp_path / "cache") == here
    changed = [path.name for path, at in before.items() if path.stat().st_mtime_ns != at]
    assert changed == [shard.name]
    np.testing.assert_array_equal(
        np.frombuffer(shard.read_bytes(), np.uint8),
        np.frombuffer((bucket / "rows" / shard.name).read_bytes(), np.uint8),
    )
    with pytest.raises(UserError, match="there is no folder gs://bucket/none"):
        fetched("gs://bucket/none", tmp_path / "cache")
