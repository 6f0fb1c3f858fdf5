import json
import math
import os
import struct
import sys
import tempfile
import types

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from posenc_jax.errors import UserError
from posenc_jax.training import trackers
from posenc_jax.training.trackers import METRICS_FILE, JsonLines, TensorBoard, Terminal, WeightsAndBiases, read_metrics

TRAIN = {"loss": 5.0, "mlm_loss": 4.0, "rtd_loss": 0.02, "tokens_per_second": 12345.6, "mfu": 0.4567}


def test_a_line_says_losses_speed_utilisation_waiting_memory_and_time_left(capsys):
    terminal = Terminal(100, 0, "run")
    terminal.advance(1)
    terminal.write("train", 10, {**TRAIN, "data_wait": 0.25, "memory_gib": 9.5})
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("run  step 10/100  loss 5.0000 (mlm 4.0000, rtd 0.0200)")
    for word in ("12,346 tokens/s", "45.7% MFU", "waits 25% for data", "9.50 GiB", "left"):
        assert word in line


def test_what_is_not_known_is_not_in_the_line(capsys):
    Terminal(100, 0, "run").write("train", 10, {"loss": 5.0, "data_wait": 0.001})
    line = capsys.readouterr().out
    assert "MFU" not in line and "GiB" not in line and "waits" not in line


def test_only_one_of_several_processes_speaks(capsys):
    terminal = Terminal(100, 0, "run", silent=True)
    terminal.write("train", 10, TRAIN)
    terminal.write("validation", 10, TRAIN)
    assert capsys.readouterr().out == ""


def test_tensorboard_says_nothing_of_what_is_not_finite(tmp_path, caplog):
    board = TensorBoard(tmp_path, 0)
    board.write("skipped", 1, {"loss": math.nan, "grad_norm": math.inf})
    board.close()
    assert caplog.records == []


def test_lines_after_the_step_a_run_goes_on_from_are_cut_off(tmp_path):
    lines = JsonLines(tmp_path, 0)
    for step in (1, 2, 3):
        lines.write("train", step, {"loss": float(step)})
    lines.close()
    JsonLines(tmp_path, 2).close()
    assert [event["step"] for event in read_metrics(tmp_path)] == [1, 2]


def test_a_skipped_step_leaves_its_rows_and_what_is_no_number_as_a_word(tmp_path, capsys):
    values = {"loss": math.nan, "grad_norm": math.inf, "rows": [3, 1]}
    lines = JsonLines(tmp_path, 0)
    for tracker in (lines, Terminal(9, 0, "run")):
        tracker.write("skipped", 7, values)
    lines.close()
    text = (tmp_path / METRICS_FILE).read_text()
    event = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert (event["step"], event["loss"], event["grad_norm"], event["rows"]) == (7, "nan", "inf", [3, 1])
    assert "step 7/9  loss nan, gradient inf: update left out" in capsys.readouterr().out


def board(workdir):
    """All events, in the order they were written: length, its checksum, message, its checksum."""
    events = []
    for file in sorted((workdir / "tensorboard").iterdir(), key=lambda file: file.stat().st_mtime_ns):
        content = file.read_bytes()
        while content:
            (length,) = struct.unpack("Q", content[:8])
            events.append(Event.FromString(content[12 : 12 + length]))
            content = content[12 + length + 4 :]
    return events


def test_tensorboard_gets_scalars_by_step_and_what_a_killed_run_left_is_superseded(tmp_path):
    first = TensorBoard(tmp_path, 0)
    first.write("train", 5, {"loss": 2.5, "rows": [1, 2], "mfu": 0.5})
    first.write("train", 10, {"loss": 2.0})  # on the disk already: a kill needs no close
    second = TensorBoard(tmp_path, 5)
    second.write("train", 10, {"loss": 1.5})
    second.close()
    events = board(tmp_path)
    scalars = [(event.step, value.tag, value.simple_value) for event in events for value in event.summary.value]
    assert scalars == [(5, "train/loss", 2.5), (5, "train/mfu", 0.5), (10, "train/loss", 2.0), (10, "train/loss", 1.5)]
    assert [event.step for event in events if event.session_log.status == SessionLog.START] == [6]
    assert sum(event.file_version == "brain.Event:2" for event in events) == 2


@pytest.mark.parametrize("tracker", [JsonLines, TensorBoard])
def test_a_disk_without_room_for_metrics_is_one_sentence_and_nothing_waits(tmp_path, tracker):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    writes, full = tracker(tmp_path, 0), open("/dev/full", "ab" if tracker is TensorBoard else "a")
    if tracker is JsonLines:
        writes._file = full
    else:
        writes._writer._py_recordio_writer._writer = full
    for step in range(30):  # more than any queue holds
        with pytest.raises(UserError, match=r"cannot write .*No space left .*run the same line again"):
            writes.write("train", step, {"loss": 1.0})
    writes.close()


def test_a_bucket_that_is_gone_is_told_once_and_leaves_no_files_here(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "is_remote", lambda path: True)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda: str(own))
    (own := tmp_path / "own").mkdir()
    board = TensorBoard(tmp_path / "bucket", 0)
    (tmp_path / "bucket").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*tensorboard"):
        board.write("train", 1, {"loss": 1.0})
    board.close()
    assert not own.exists()


class FakeWandb(types.ModuleType):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__("wandb")
        self.opened, self.logged, self.finished = [], [], 0

    def init(self, **settings):
        self.opened.append(settings)
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.finished += 1


def test_wandb_gets_scalars_by_step_and_goes_on_as_the_same_run(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for step in (1, 2):
        tracker = WeightsAndBiases("project", tmp_path, {"model": {"width": 16}})
        tracker.write("train", step, {"loss": 1.0, "note": "words"})
        tracker.close()
    assert fake.logged == [(1, {"train/loss": 1.0}), (2, {"train/loss": 1.0})] and fake.finished == 2
    first, second = fake.opened
    assert first == second and first["project"] == "project" and first["resume"] == "allow"
    assert json.dumps(first["config"]) == '{"model": {"width": 16}}'


def test_wandb_that_is_missing_or_refuses_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install '\.\[wandb\]'"):
        WeightsAndBiases("project", tmp_path, {})
    fake = FakeWandb()
    fake.init = lambda **_: 1 / 0
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with pytest.raises(UserError, match=r"--wandb project cannot be opened .*log in, or leave it out"):
        WeightsAndBiases("project", tmp_path, {})
