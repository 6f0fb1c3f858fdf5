"""The loop. Pre-training and fine-tuning are this one, with other batches and another objective behind the step."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

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
    on_step: Callable[[int], None] = _nothing,
    on_log: Callable[[int, dict[str, float]], None] = _nothing,
    on_evaluate: Callable[[TrainState], None] = _nothing,
    on_save: Callable[[TrainState], None] = _nothing,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainState:
    """Trains from `state.step` to `total_steps`, or until `should_stop`; saves before it returns.

    `on_log` gets means over the steps since the last log and, where these are timed, "seconds" a step and "data_wait",
    the share of the time spent waiting for a batch; the first step, which compiles, is not timed. The metrics of a step
    are fetched after the next one is dispatched, so the device never waits for the host. Raises `UserError` at the
    first loss that is not finite; such a state is never saved.
    """
    step = saved = first = int(state.step)
    window = _Window(step)
    while step < total_steps and not should_stop():  # 1. whether to go on
        batch = window.wait_for(batches)  # 2. the next batch
        state, metrics = train_step(state, batch)  # 3. dispatch an update
        window.take_previous()  # 4. read the update before it, and stop at a NaN
        step += 1
        window.pending = (step, metrics)
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
            on_save(state)  # 8. save
            saved = step
    window.take_previous()
    if saved < step:
        on_save(state)  # 9. save what an interrupt would lose
    return state


class _Window:
    """Metrics and times of the steps since the last log."""

    def __init__(self, step: int) -> None:
        self.pending: tuple[int, dict[str, jax.Array]] | None = None
        self.restart(step)

    def restart(self, step: int) -> None:
        """Starts the clock anew: what went before, a compilation or an evaluation, is not the speed of training."""
        self._sums: dict[str, float] = getattr(self, "_sums", {})
        self._count = getattr(self, "_count", 0)
        self._from, self._began, self._waited = step, time.monotonic(), 0.0

    def wait_for(self, batches: Iterator[Any]) -> Any:
        began = time.monotonic()
        batch = next(batches)
        self._waited += time.monotonic() - began
        return batch

    def take_previous(self) -> None:
        if self.pending is None:
            return
        (step, metrics), self.pending = self.pending, None
        for name, value in jax.device_get(metrics).items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
        if not math.isfinite(self._sums["loss"]):
            raise UserError(
                f"the loss is not finite at step {step}; checkpoints before it are whole: lower "
                "optimizer.learning_rate or raise optimizer.warmup, and start in a new workdir"
            )
        self._count += 1

    def read(self, step: int) -> dict[str, float]:
        self.take_previous()
        seconds = max(time.monotonic() - self._began, 1e-9)
        means = {name: total / self._count for name, total in self._sums.items()}
        timing = {}
        if step > self._from:
            timing = {"seconds": seconds / (step - self._from), "data_wait": self._waited / seconds}
        self._sums, self._count = {}, 0
        self.restart(step)
        return {**means, **timing}
