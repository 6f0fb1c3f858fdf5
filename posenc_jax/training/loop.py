"""The loop. Pre-training and fine-tuning are this one, with other batches and another objective behind the step."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from posenc_jax.errors import UserError
from posenc_jax.training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Every:
    """How often, in steps; 0 is never. Each is also done at the last step."""

    log: int = 0
    evaluate: int = 0
    save: int = 0


def _nothing(*_: Any) -> None:
    return None


def fit(
    state: TrainState,
    train_step: Callable[[TrainState, Any], tuple[TrainState, dict[str, jax.Array]]],
    batches: Iterator[Any],
    *,
    total_steps: int,
    every: Every = Every(),
    skipped_updates: int = 0,
    on_step: Callable[[int], None] = _nothing,
    on_skip: Callable[[int, list[int], dict[str, float]], None] = _nothing,
    on_log: Callable[[int, dict[str, float]], None] = _nothing,
    on_evaluate: Callable[[TrainState], None] = _nothing,
    on_save: Callable[[TrainState], None] = _nothing,
    should_stop: Callable[[int], bool] = lambda step: False,
) -> TrainState:
    """Trains from `state.step` to `total_steps`, or until `should_stop(updates done)`; saves before it returns.

    `on_log` gets means over the steps since the last log and, where these are timed, "seconds" a step and "data_wait",
    the share of the time spent waiting for a batch; the first step, which compiles, is not timed. The metrics of a step
    are fetched after the next one is dispatched, so the device never waits for the host.

    A step whose update was left out ("skipped", see `make_train_step`) goes to `on_skip` with the numbers of its rows,
    all processes' (none where batches have no "row"), and its loss and gradient norm. Means leave it out; "skipped"
    of a log counts such steps where there are any. No state is saved when it is due right after one, as what the
    update before it led to is not known to be sound. Raises `UserError` when more than `skipped_updates` follow each
    other.
    """
    step = saved = first = int(state.step)
    window = _Window(step, skipped_updates, on_skip)
    while step < total_steps and not should_stop(step):  # 1. whether to go on
        batch = window.wait_for(batches)  # 2. the next batch
        state, metrics = train_step(state, batch)  # 3. dispatch an update
        window.take_previous()  # 4. read the update before it, and stop at a NaN too many
        step += 1
        window.pending = (step, metrics, batch)
        if step == first + 1:
            window.take_previous()
            window.restart(step)
        on_step(step)  # 5. show that it moves
        due = {name: n and (step % n == 0 or step == total_steps) for name, n in dataclasses.asdict(every).items()}
        if due["log"]:
            on_log(step, window.read(step))  # 6. log
        if due["evaluate"]:
            window.take_previous()
            on_evaluate(state)  # 7. evaluate
            window.restart(step)
        if due["save"]:
            window.take_previous()
            if not window.skipped_in_a_row:
                on_save(state)  # 8. save
                saved = step
    window.take_previous()
    if saved < step:
        on_save(state)  # 9. save what an interrupt would lose
    return state


class _Window:
    """Metrics and times of the steps since the last log."""

    def __init__(self, step: int, skipped_updates: int, on_skip: Callable[[int, list[int], dict], None]) -> None:
        self.pending: tuple[int, dict[str, jax.Array], Any] | None = None
        self.skipped_in_a_row = 0
        self._skipped_updates, self._on_skip = skipped_updates, on_skip
        self._clear()
        self.restart(step)

    def _clear(self) -> None:
        self._sums: dict[str, float] = {}
        self._count = self._skipped = 0

    def restart(self, step: int) -> None:
        """Starts the clock anew: what went before, a compilation or an evaluation, is not the speed of training."""
        self._from, self._began, self._waited = step, time.monotonic(), 0.0

    def wait_for(self, batches: Iterator[Any]) -> Any:
        began = time.monotonic()
        batch = next(batches)
        self._waited += time.monotonic() - began
        return batch

    def take_previous(self) -> None:
        if self.pending is None:
            return
        (step, metrics, batch), self.pending = self.pending, None
        values = {name: float(value) for name, value in jax.device_get(metrics).items()}
        if values.pop("skipped", not math.isfinite(values["loss"])):
            self._skip(step, batch, values)
            return
        self.skipped_in_a_row = 0
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._count += 1

    def _skip(self, step: int, batch: Any, values: dict[str, float]) -> None:
        self._skipped += 1
        self.skipped_in_a_row += 1
        told = {name: values[name] for name in ("loss", "grad_norm") if name in values}
        self._on_skip(step, _row_numbers(batch), told)
        if self.skipped_in_a_row > self._skipped_updates:
            what = "gradient" if math.isfinite(values["loss"]) else "loss"
            before = f", nor one of the {self._skipped_updates} updates before it" if self._skipped_updates else ""
            raise UserError(
                f"the {what} is not finite at step {step}{before}; checkpoints before it are whole: lower "
                "optimizer.learning_rate or raise optimizer.warmup, and start in a new workdir"
            )

    def read(self, step: int) -> dict[str, float]:
        self.take_previous()
        seconds = max(time.monotonic() - self._began, 1e-9)
        means = {name: total / self._count for name, total in self._sums.items()} or {"loss": math.nan}
        if self._skipped:
            means["skipped"] = self._skipped
        timing = {}
        if step > self._from:
            timing = {"seconds": seconds / (step - self._from), "data_wait": self._waited / seconds}
        self._clear()
        self.restart(step)
        return {**means, **timing}


def _row_numbers(batch: Any) -> list[int]:
    """Which rows of the data a global batch holds, those of other processes among them."""
    if not isinstance(batch, dict) or "row" not in batch:
        return []
    row_B = batch["row"]
    if not row_B.is_fully_addressable:  # all processes come here, as all see the same metrics
        row_B = multihost_utils.process_allgather(row_B, tiled=True)
    return np.asarray(row_B).tolist()
