"""Where metrics go: lines of JSON, TensorBoard, the terminal, Weights & Biases."""

import contextlib
import hashlib
import json
import logging
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from posenc_jax.data.rows import write_whole
from posenc_jax.errors import UserError
from posenc_jax.storage import is_remote, place

METRICS_FILE = "metrics.jsonl"


class JsonLines:
    """One line an event in `metrics.jsonl`; lines after `step`, left by a run that was killed, are cut off first."""

    def __init__(self, workdir: Path, step: int) -> None:
        path = workdir / METRICS_FILE
        kept = [event for event in read_metrics(workdir) if event["step"] <= step and event["kind"] != "summary"]
        self._path, self._lines = path, [json.dumps(event) + "\n" for event in kept]
        write_whole(path, "".join(self._lines))
        self._file = None if is_remote(path) else path.open("a")

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        plain = {name: _plain(value) for name, value in values.items()}
        line = json.dumps({"step": step, "kind": kind, "time": round(time.time(), 3), **plain}) + "\n"
        with _telling(self._path):
            if self._file:
                self._file.write(line)
                self._file.flush()
            else:  # what is in a bucket is written anew
                self._lines.append(line)
                write_whole(self._path, "".join(self._lines))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written was told when it was
            if self._file:
                self._file.close()


@contextlib.contextmanager
def _telling(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror or error}); checkpoints are whole: mend that and run the same line "
            "again"
        ) from error


def _plain(value: Any) -> Any:
    """What is not a finite number as a word: JSON has none for it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def read_metrics(workdir: Path) -> list[dict]:
    """All events of a run; a half-written last line is left out. Raises `UserError` for any other damage."""
    path = place(workdir) / METRICS_FILE
    lines = path.read_bytes().splitlines() if path.exists() else []
    events = []
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
            if not {"step", "kind"} <= event.keys():
                raise ValueError("it has no step and kind")
            events.append(event)
        except (ValueError, AttributeError) as error:
            if number < len(lines):
                raise UserError(f"{path} line {number} is no event ({error}); take that line out") from error
    return events


class TensorBoard:
    """Scalars under `tensorboard/`, "train/loss" and so on; events after `step` are marked as superseded.

    Written by the caller: tensorboardX's own SummaryWriter hands events to a thread, which a full disk ends, and then
    waits for it for ever.
    """

    def __init__(self, workdir: Path, step: int) -> None:
        self._folder = workdir / "tensorboard"
        logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)  # the terminal says what is not finite
        self._own = tempfile.mkdtemp() if is_remote(workdir) else None
        with _telling(self._folder):
            folder = Path(self._own or self._folder)
            folder.mkdir(exist_ok=True)
            self._writer = EventsWriter(str(folder / "events"), f".{time.time_ns()}")  # the name alone has seconds
            if step:
                log = SessionLog(status=SessionLog.START)
                self._writer.write_event(Event(step=step + 1, wall_time=time.time(), session_log=log))

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        with _telling(self._folder):
            for name, value in values.items():
                if isinstance(value, int | float):
                    summary = scalar(f"{kind}/{name}", value)
                    self._writer.write_event(Event(step=step, wall_time=time.time(), summary=summary))
            self._writer.flush()
            self._copy()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written was told when it was
            self._writer.close()
        if self._own:  # `write` has copied what is in it
            shutil.rmtree(self._own, ignore_errors=True)

    def _copy(self) -> None:
        """To the bucket, which cannot be appended to."""
        if self._own:
            self._folder.mkdir(parents=True, exist_ok=True)
            for file in Path(self._own).iterdir():
                (self._folder / file.name).write_bytes(file.read_bytes())


class WeightsAndBiases:
    """Scalars as a run of a Weights & Biases project, which goes on where the workdir does."""

    def __init__(self, project: str, workdir: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError("--wandb needs the package wandb: pip install '.[wandb]'") from None
        where = str(workdir) if is_remote(workdir) else str(workdir.absolute())
        name = hashlib.sha256(where.encode()).hexdigest()[:16]
        folder = None if is_remote(workdir) else str(workdir)
        try:
            self._run = wandb.init(
                project=project, id=name, name=workdir.name, dir=folder, config=dict(config), resume="allow"
            )
        except Exception as error:  # no key, no network: whatever the client makes of it
            raise UserError(f"--wandb {project} cannot be opened ({error}); log in, or leave it out") from error

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        scalars = {f"{kind}/{name}": value for name, value in values.items() if isinstance(value, int | float)}
        self._run.log(scalars, step=step)

    def close(self) -> None:
        self._run.finish()


class Terminal:
    """A progress bar where there is a terminal, else a plain line a message; or `silent`."""

    def __init__(self, total_steps: int, step: int, title: str, silent: bool = False) -> None:
        self._total, self._title, self._silent = total_steps, title, silent
        self._clock: tuple[float, int] | None = None  # when the first step was done, and which it was
        console = Console()
        self._bar = None
        if console.is_terminal and not silent:
            columns = (
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
            )  # fmt: skip
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task(title, total=total_steps, completed=step, note="")
            self._bar.start()

    def advance(self, step: int) -> None:
        self._clock = self._clock or (time.monotonic(), step)
        if self._bar:
            self._bar.update(self._task, completed=step)

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        if kind == "train":
            note = "  ".join([_losses(values), *_speed(values)])
            if self._bar:
                self._bar.update(self._task, completed=step, note=note)
            else:
                self.say(f"{self._title}  step {step}/{self._total}  {note}  {self._left(step)} left")
        elif kind == "validation":
            self.say(f"{self._title}  step {step}/{self._total}  validation {_losses(values)}")
        elif kind == "skipped":
            self.say(
                f"{self._title}  step {step}/{self._total}  loss {values['loss']}, gradient {values['grad_norm']}: "
                f"update left out; the rows of the batch are in {METRICS_FILE}"
            )

    def say(self, line: str) -> None:
        if self._bar:
            self._bar.console.print(line, highlight=False)
        elif not self._silent:
            try:
                print(line, flush=True)
            except BrokenPipeError:  # whoever read along has gone; the run goes on
                sys.stdout = open(os.devnull, "w")

    def close(self) -> None:
        if self._bar:
            self._bar.stop()

    def _left(self, step: int) -> str:
        since, first = self._clock or (time.monotonic(), step)
        seconds = round((time.monotonic() - since) / max(1, step - first) * (self._total - step))
        return f"{seconds // 60}:{seconds % 60:02d}"


def _losses(values: Mapping[str, float]) -> str:
    """The loss, and the terms that it is the weighted sum of where there are several."""
    terms = [f"{name.removesuffix('_loss')} {value:.4f}" for name, value in values.items() if name.endswith("_loss")]
    return f"loss {values['loss']:.4f}" + (f" ({', '.join(terms)})" if terms else "")


def _speed(values: Mapping[str, float]) -> list[str]:
    """Words a second and, where they say something, how busy and how full the chips are."""
    parts = []
    if "tokens_per_second" in values:
        parts.append(f"{values['tokens_per_second']:,.0f} tokens/s")
    if "mfu" in values:
        parts.append(f"{values['mfu']:.1%} MFU")
    if values.get("data_wait", 0) >= 0.01:
        parts.append(f"waits {values['data_wait']:.0%} for data")
    if "memory_gib" in values:
        parts.append(f"{values['memory_gib']:.2f} GiB")
    return parts
