"""Checkpoints: written in the background, whole or not at all, read into the mesh of the moment.

A step's folder holds `params`, `opt_state` and `meta` apart, so that a fine-tuning reads the parameters alone. `meta`
also says of every array what it is and a sum over its bits, made before it was written: what a disk changed is found. A
step that cannot be read, or is not what was saved, is set aside, never deleted, and the one before it is used. One that
is whole but of another config is refused, with what differs.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import math
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from posenc_jax.data.rows import write_whole
from posenc_jax.errors import UserError
from posenc_jax.parallel.distributed import all_agree, on_first
from posenc_jax.storage import is_remote, place
from posenc_jax.training.fingerprint import bit_sums, described, differences
from posenc_jax.training.state import TrainState
from posenc_jax.training.workdir import CHECKPOINTS as FOLDER

METRIC = "validation_loss"
TEMPORARY = ".orbax-checkpoint-tmp"
ARRAYS = "arrays"
"""In `meta`: name -> [type and shape, sum over the bits]; steps written before there was one are read without it."""


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
    """The checkpoints of a workdir, as many of them as `keep` says; open until the end of a `with`, or `close`."""

    def __init__(self, workdir: Path, keep: Keep = Keep()) -> None:
        self.folder = _folder(workdir)
        on_first(self._remove_half_written)
        on_first(self._mend_metrics)
        self._last: int | None = None
        self._while_open = contextlib.ExitStack()
        self._while_open.enter_context(_quiet())  # its threads write long after `save` has returned
        self._while_open.callback(_NoClosedLoops().close)
        with contextlib.ExitStack() as unless_opened:
            unless_opened.callback(self._while_open.close)
            self._manager = ocp.CheckpointManager(
                self.folder,
                options=ocp.CheckpointManagerOptions(
                    preservation_policy=keep.policy(),
                    enable_async_checkpointing=True,
                    best_fn=lambda metrics: -metrics[METRIC],
                ),
                item_names=("params", "opt_state", "meta"),
            )
            unless_opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            self.close()
        except UserError:
            if kind is None:  # else what ended the run is what its user should read
                raise

    def save(self, state: TrainState, meta: dict[str, Any]) -> None:
        """Starts to write the state; waits for the write before it, whose failure is told here."""
        self.wait()
        step = int(state.step)
        if step in self._manager.all_steps():
            return
        on_first(lambda: self._check_space(state, step))
        meta = {**meta, ARRAYS: _record(_items(state))}
        self._last = step
        with self._telling():
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
        with self._telling():
            self._manager.wait_until_finished()
            self._manager.check_for_errors()

    def close(self) -> None:
        """Ends after what is being written. Raises `UserError` where that failed."""
        with self._while_open, self._telling():
            self._manager.close()

    def restore(self, target: TrainState, warn: Any = print) -> tuple[TrainState, dict[str, Any]] | None:
        """State and meta of the newest step that can be read, None where none was ever written.

        `target` gives shapes, types and shardings. Raises `UserError` when there are steps but none can be read,
        and for one whose arrays are not `target`'s, which are named.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        unreadable: list[int] = []
        for step in steps:
            on_first(functools.partial(_check_arrays, self.folder / str(step), _items(target)))
            found, reason = self._read(step, target)
            # What one process cannot read none uses; and sums are over the devices of all.
            if not all_agree(found is not None):
                unreadable.append(step)
                continue
            state, meta = found
            if not _is_what_was_saved(meta.pop(ARRAYS, None), _items(state)):
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
            return None, _first_line(error)

    def _remove_half_written(self) -> None:
        """What a run that was killed while it saved has left; orbax would leave it, too. In a bucket nothing bears such
        a name."""
        if not is_remote(self.folder):
            for leftover in self.folder.glob(f"*{TEMPORARY}*"):
                shutil.rmtree(leftover)

    def _mend_metrics(self) -> None:
        """Orbax reads the loss of every step as it opens, and fails where one is damaged; `meta` has it, too."""
        for path in self.folder.glob("*/metrics/metrics"):
            step = path.parent.parent
            if not step.name.isdigit() or _loss_in(path) is not None:
                continue
            if (loss := _loss_in(step / "meta" / "metadata")) is None:
                path.unlink()
            else:
                write_whole(path, json.dumps({METRIC: loss}))

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
            names = (self.folder / f"{step}.unreadable{number or ''}" for number in itertools.count())
            aside = next(name for name in names if not name.exists())  # the same step may be damaged again
            (self.folder / str(step)).rename(aside)
            warn(f"checkpoint {step} cannot be read and is set aside as {aside.name}; going on from step {used}")

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise UserError(
                f"cannot write checkpoint {self._last} in {self.folder} ({_first_line(error)}); what was saved before "
                "is whole: mend that and run the same line again"
            ) from error


def restore_params(workdir: Path, target: Any, warn: Any = print, step: int | None = None) -> tuple[Any, int]:
    """Parameters alone, of the newest step in a workdir that can be read, into `target`'s shapes; and that step.

    With `step` it is that one or none.
    `target` may be a part of the tree: {"encoder": ...}. A step that cannot be read, or is not what was saved, is told
    by `warn`. Raises `UserError` when there is no such step, and for one whose arrays are not `target`'s.
    """
    args = ocp.args.PyTreeRestore(
        item=target, restore_args=ocp.checkpoint_utils.construct_restore_args(target), partial_restore=True
    )
    return _newest(workdir, lambda reader, folder: reader.restore(folder, args=args), target, warn, step)


def read_params(workdir: Path, warn: Any = print, step: int | None = None) -> tuple[Any, int]:
    """As `restore_params`, but all there is, as NumPy arrays in the host's memory."""

    def read(reader: ocp.Checkpointer, folder: Path) -> Any:
        tree = reader.metadata(folder).item_metadata.tree
        kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        return reader.restore(folder, args=ocp.args.PyTreeRestore(restore_args=kinds))

    return _newest(workdir, read, None, warn, step)


def save_params(workdir: Path, params: Any) -> None:
    """Parameters that were trained elsewhere as checkpoint 0 of a new workdir; there is nothing else to go on from.

    Raises `UserError` where they cannot be written.
    """
    folder = _folder(workdir)
    args = ocp.args.Composite(
        params=ocp.args.StandardSave(params), meta=ocp.args.JsonSave({"step": 0, ARRAYS: _record({"params": params})})
    )
    try:
        with _quiet(), ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as writer:
            writer.save(folder / "0", args=args)
    except Exception as error:  # a full disk reaches us as whatever the writer makes of it
        raise UserError(
            f"cannot write checkpoint 0 in {folder} ({_first_line(error)}); mend that and run it again"
        ) from error


def _newest(
    workdir: Path, read: Callable[[ocp.Checkpointer, Path], Any], target: Any, warn: Any, step: int | None
) -> tuple[Any, int]:
    folder = _folder(workdir)
    steps = sorted((int(path.name) for path in folder.glob("*") if path.name.isdigit()), reverse=True)
    reason = "there is none"
    if step is not None:
        if step not in steps:
            there = ", ".join(map(str, reversed(steps))) or "none"
            raise UserError(f"{folder} has no checkpoint {step}; there are: {there}")
        steps = [step]
    for step in steps:
        if target is not None:
            _check_arrays(folder / str(step), {"params": target}, is_part=True)
        try:
            with _quiet(), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
                params = read(reader, folder / str(step) / "params")
            recorded = _recorded(folder / str(step))
        except Exception as error:
            reason = f"{step} cannot be read: {_first_line(error)}"
            continue
        if not _is_what_was_saved(recorded, {"params": params}):
            reason = f"{step} cannot be read: its numbers are not those that were saved"
            continue
        if not reason.startswith("there"):
            warn(f"checkpoint {reason}; taking step {step}")
        return params, step
    mend = "put back a whole copy, or name another workdir" if steps else "run `pretrain` with this workdir first"
    raise UserError(f"{folder} has no checkpoint that can be read ({reason}); {mend}")


def _loss_in(path: Path) -> float | None:
    try:
        return float(json.loads(path.read_text())[METRIC])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _items(state: TrainState) -> dict[str, Any]:
    return {"params": state.params, "opt_state": state.opt_state}


def _record(items: dict[str, Any]) -> dict[str, tuple[str, int]]:
    kinds, sums = described(items), bit_sums(items)
    return {name: (kinds[name], sums[name]) for name in kinds}


def _recorded(step: Path) -> dict[str, tuple[str, int]] | None:
    """What `meta` says of the arrays of a step; None where it says nothing. Raises whatever a damaged one makes it."""
    return json.loads((step / "meta" / "metadata").read_text()).get(ARRAYS)


def _is_what_was_saved(recorded: dict[str, tuple[str, int]] | None, items: dict[str, Any]) -> bool:
    """Whether the sums of arrays that were read are those on record; of arrays without a record nothing is known."""
    if recorded is None:
        return True
    return all(total == recorded.get(name, (None, None))[1] for name, total in bit_sums(items).items())


def _check_arrays(step: Path, items: dict[str, Any], is_part: bool = False) -> None:
    """Raises `UserError` with the first differences where a step is whole and holds other arrays than `items`; more
    than those may be there where they are a part. What is damaged passes: reading it will tell."""
    wanted = described(items)
    try:
        reader = ocp.PyTreeCheckpointHandler()
        there = described({item: reader.metadata(step / item).tree for item in items})
        recorded = _recorded(step) or {}
        on_record = {name: recorded[name][0] for name in recorded if name.partition("/")[0] in items}
    except Exception:
        return
    if recorded and on_record != there:
        return
    if is_part:
        there = {name: kind for name, kind in there.items() if name in wanted}
    if different := differences(there, wanted):
        raise UserError(
            f"checkpoint {step.name} in {step.parent} is of another model than the config: {'; '.join(different)}. Put "
            "back the config.json and the version of posenc_jax that it was trained with, or name another workdir"
        )


def _folder(workdir: Path) -> Path:
    folder = place(workdir)
    return (folder if is_remote(folder) else folder.absolute()) / FOLDER


def _first_line(error: Exception) -> str:
    said = (str(error).strip().splitlines() or [""])[0].partition(" See full")[0][:300]
    # What a reader misses in a damaged file is a name of its own, which says nothing alone.
    is_name = isinstance(error, LookupError | AttributeError | TypeError)
    return f"{type(error).__name__} {said}".strip() if is_name or not said else said


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Orbax reports its housekeeping through absl's logger, as others do; what matters is raised."""
    logger, packaged = logging.getLogger("absl"), str(Path(ocp.__file__).parent)
    passes = lambda record: not record.pathname.startswith(packaged)  # noqa: E731 -- another one for each that is open
    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)


class _NoClosedLoops:
    """When one write fails, tensorstore reports each of the others to an event loop that is there no more, and Python
    prints a traceback for each. The failure itself is raised. May be closed in any order."""

    def __init__(self) -> None:
        self._before, self._open = sys.unraisablehook, True
        sys.unraisablehook = self

    def __call__(self, what: Any) -> None:
        if not (self._open and str(what.exc_value) == "Event loop is closed"):
            self._before(what)

    def close(self) -> None:
        self._open = False
        while isinstance(hook := sys.unraisablehook, _NoClosedLoops) and not hook._open:
            sys.unraisablehook = hook._before
