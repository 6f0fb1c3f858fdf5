"""Checkpoints: written in the background, whole or not at all, read into the mesh of the moment.

A step's folder holds `params`, `opt_state` and `meta` apart, so that a fine-tuning reads the parameters alone. `meta`
also holds a sum over the bits of every array, made before it was written: what a disk changed is found. A step that
cannot be read, or is not what was saved, is set aside, never deleted, and the one before it is used.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from posenc_jax.errors import UserError
from posenc_jax.parallel.distributed import all_agree, on_first
from posenc_jax.storage import is_remote, place
from posenc_jax.training.state import TrainState

FOLDER = "checkpoints"
METRIC = "validation_loss"
SUMS = "sums"


@dataclasses.dataclass(frozen=True)
class Keep:
    """Which checkpoints stay: those that any of the three wants."""

    newest: int = 3
    every: int = 0
    """Steps that are a multiple of this; 0 is none."""
    best: int = 0
    """So many of the lowest "validation_loss" in their meta; one without it is not among them."""

    def policy(self) -> checkpoint_managers.PreservationPolicy:
        wanted: list[checkpoint_managers.PreservationPolicy] = [checkpoint_managers.LatestN(self.newest)]
        if self.every:
            wanted.append(checkpoint_managers.EveryNSteps(self.every))
        if self.best:
            lowest = checkpoint_managers.BestN(
                get_metric_fn=lambda metrics: -metrics[METRIC], n=self.best, keep_checkpoints_without_metrics=False
            )
            wanted.append(lowest)
        return checkpoint_managers.AnyPreservationPolicy(wanted)


class Checkpoints:
    """The checkpoints of a workdir, as many of them as `keep` says."""

    def __init__(self, workdir: Path, keep: Keep = Keep()) -> None:
        self.folder = _folder(workdir)
        with _quiet():
            self._manager = ocp.CheckpointManager(
                self.folder,
                options=ocp.CheckpointManagerOptions(
                    preservation_policy=keep.policy(),
                    enable_async_checkpointing=True,
                    best_fn=lambda metrics: -metrics[METRIC],
                ),
                item_names=("params", "opt_state", "meta"),
            )

    def save(self, state: TrainState, meta: dict[str, Any]) -> None:
        """Starts to write the state; waits for the write before it, whose failure is told here."""
        step = int(state.step)
        if step in self._manager.all_steps():
            return
        on_first(lambda: self._check_space(state, step))
        meta = {**meta, SUMS: _sums(state)}
        with self._telling(f"cannot write checkpoint {step}"):
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardSave(state.params),
                    opt_state=ocp.args.StandardSave(state.opt_state),
                    meta=ocp.args.JsonSave(meta),
                ),
                metrics={METRIC: meta[METRIC]} if math.isfinite(meta.get(METRIC) or math.nan) else None,
                force=True,
            )

    def wait(self) -> None:
        """Returns when all that was saved is on the disk. Raises `UserError` if it is not."""
        with self._telling("cannot write the last checkpoint"):
            self._manager.wait_until_finished()
            self._manager.check_for_errors()

    def close(self) -> None:
        with _quiet():
            self._manager.close()

    def restore(self, target: TrainState, warn: Any = print) -> tuple[TrainState, dict[str, Any]] | None:
        """State and meta of the newest step that can be read, None where none was ever written.

        `target` gives shapes, types and shardings. Raises `UserError` when there are steps but none can be read.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        unreadable: list[int] = []
        for step in steps:
            found, reason = self._read(step, target)
            # What one process cannot read none uses; and sums are over the devices of all.
            if not all_agree(found is not None):
                unreadable.append(step)
                continue
            state, meta = found
            if meta.pop(SUMS, None) not in (None, _sums(state)):
                unreadable.append(step)
                reason = "its numbers are not those that were saved"
                continue
            on_first(functools.partial(self._set_aside, unreadable, step, warn))
            if unreadable:
                self._manager.reload()
            return state, meta
        if unreadable:
            raise UserError(
                f"none of the checkpoints {', '.join(map(str, unreadable))} in {self.folder} can be read ({reason}); "
                "put back a whole copy, or start again in a new workdir"
            )
        return None

    def _read(self, step: int, target: TrainState) -> tuple[tuple[TrainState, dict[str, Any]] | None, str]:
        """State and meta of a step, or None and why it cannot be read."""
        try:
            with _quiet():
                found = self._manager.restore(
                    step,
                    args=ocp.args.Composite(
                        params=ocp.args.StandardRestore(target.params),
                        opt_state=ocp.args.StandardRestore(target.opt_state),
                        meta=ocp.args.JsonRestore(),
                    ),
                )
            at = jax.device_put(found.meta["step"], target.step.sharding).astype(target.step.dtype)
            return (TrainState(step=at, params=found.params, opt_state=found.opt_state), found.meta), ""
        except Exception as error:  # whatever a damaged file makes the reader raise
            return None, _first_line(error) if str(error).strip() else "it is damaged"

    def _check_space(self, state: TrainState, step: int) -> None:
        """Refuses before a byte is written: a writer that meets a full disk in the background is loud and late."""
        if is_remote(self.folder):
            return
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves((state.params, state.opt_state)))
        free = shutil.disk_usage(self.folder).free
        if free < needed + 1e6:  # and a megabyte of indices
            raise UserError(
                f"no room for checkpoint {step} in {self.folder}: it takes {needed / 1e6:.1f} MB and "
                f"{free / 1e6:.1f} MB are free; what was saved before is whole: make room and run the same line again"
            )

    def _set_aside(self, unreadable: list[int], used: int, warn: Any) -> None:
        for step in unreadable:
            aside = self.folder / f"{step}.unreadable"
            (self.folder / str(step)).rename(aside)
            warn(f"checkpoint {step} cannot be read and is set aside as {aside.name}; going on from step {used}")

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            with _quiet():
                yield
        except Exception as error:
            raise UserError(
                f"{what} in {self.folder} ({_first_line(error)}); what was saved before is whole: "
                "mend that and run the same line again"
            ) from error


def restore_params(workdir: Path, target: Any, warn: Any = print) -> tuple[Any, int]:
    """Parameters alone, of the newest step in a workdir that can be read, into `target`'s shapes; and that step.

    `target` may be a part of the tree: {"encoder": ...}. A step that cannot be read is told by `warn`. Raises
    `UserError` when there is no such step.
    """
    args = ocp.args.PyTreeRestore(
        item=target, restore_args=ocp.checkpoint_utils.construct_restore_args(target), partial_restore=True
    )
    return _newest(workdir, lambda reader, folder: reader.restore(folder, args=args), warn)


def read_params(workdir: Path, warn: Any = print) -> tuple[Any, int]:
    """As `restore_params`, but all there is, as NumPy arrays in the host's memory."""

    def read(reader: ocp.Checkpointer, folder: Path) -> Any:
        tree = reader.metadata(folder).item_metadata.tree
        kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        return reader.restore(folder, args=ocp.args.PyTreeRestore(restore_args=kinds))

    return _newest(workdir, read, warn)


def save_params(workdir: Path, params: Any) -> None:
    """Parameters that were trained elsewhere as checkpoint 0 of a new workdir; there is nothing else to go on from.

    Raises `UserError` where they cannot be written.
    """
    folder = _folder(workdir)
    try:
        with _quiet(), ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
            writer.save(folder / "0" / "params", args=ocp.args.StandardSave(params))
    except Exception as error:  # a full disk reaches us as whatever the writer makes of it
        raise UserError(
            f"cannot write checkpoint 0 in {folder} ({_first_line(error)}); mend that and run it again"
        ) from error


def _newest(workdir: Path, read: Callable[[ocp.Checkpointer, Path], Any], warn: Any) -> tuple[Any, int]:
    folder = _folder(workdir)
    steps = sorted((int(path.name) for path in folder.glob("*") if path.name.isdigit()), reverse=True)
    reason = "there is none"
    for step in steps:
        try:
            with _quiet(), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
                params = read(reader, folder / str(step) / "params")
            if not reason.startswith("there"):
                warn(f"checkpoint {reason}; taking step {step}")
            return params, step
        except Exception as error:
            reason = f"{step} cannot be read: {_first_line(error)}"
    raise UserError(f"{folder} has no checkpoint that can be read ({reason}); run `pretrain` with this workdir first")


def _sums(state: TrainState) -> list[int]:
    """A number for each array of a state, the same on every mesh, that one flipped bit changes for certain."""
    return [int(total) for total in jax.device_get(_bit_sums(state))]


@jax.jit
def _bit_sums(state: TrainState) -> list[jax.Array]:
    return [_bit_sum(leaf) for leaf in jax.tree.leaves(state)]


def _bit_sum(x: jax.Array) -> jax.Array:
    """Sum of the words of `x`, each times an odd number that its place decides, modulo 2^32: the order of summation
    does not matter, and an odd factor loses no bit."""
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    word = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
    words = jax.lax.bitcast_convert_type(x, word).astype(jnp.uint32)  # 64 bits become two words on a last axis
    place, stride = jnp.zeros((), jnp.uint32), 2
    for axis in reversed(range(words.ndim)):
        shape = tuple(words.shape[axis] if other == axis else 1 for other in range(words.ndim))
        iota = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        place = place.reshape((1,) * words.ndim if place.ndim == 0 else place.shape) + iota * jnp.uint32(stride % 2**32)
        stride *= words.shape[axis]
    return (words * (place + jnp.uint32(1))).sum(dtype=jnp.uint32)


def _folder(workdir: Path) -> Path:
    folder = place(workdir)
    return (folder if is_remote(folder) else folder.absolute()) / FOLDER


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Orbax reports its housekeeping through absl's logger; what matters is raised."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
