"""A pre-training run from a config and a workdir: what `pretrain` calls, and a notebook may."""

import contextlib
import dataclasses
import functools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from posenc_jax.config import Config, config_to_dict, describe
from posenc_jax.data.loader import train_batches
from posenc_jax.data.rows import TOKENIZER_FILE, RowsInfo, read_rows_info
from posenc_jax.data.tokenizer import Tokenizer
from posenc_jax.durations import to_steps
from posenc_jax.errors import UsageError, UserError
from posenc_jax.model.encoder import check_encoder
from posenc_jax.objectives.cost import step_flops
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.objectives.rtd import Rtd, generator_config
from posenc_jax.objectives.validation import make_evaluation
from posenc_jax.parallel.chips import chip_of
from posenc_jax.parallel.distributed import agree_on_stop, check_same, check_shared, is_first, on_first
from posenc_jax.parallel.mesh import check_batch, make_mesh, put_batch, row_share
from posenc_jax.parallel.watchdog import Watchdog
from posenc_jax.storage import fetched, place
from posenc_jax.training import profile
from posenc_jax.training.checkpoint import Checkpoints, Keep
from posenc_jax.training.loop import Every, fit
from posenc_jax.training.meter import Meter, device_memory
from posenc_jax.training.optimizer import make_optimizer, make_schedule
from posenc_jax.training.state import TrainState, abstract_state, count_parameters, create_state, updates_done
from posenc_jax.training.step import make_train_step
from posenc_jax.training.trackers import JsonLines, TensorBoard, Terminal, WeightsAndBiases, read_metrics
from posenc_jax.training.workdir import open_workdir

Track = Callable[[str, int, dict[str, Any]], None]
"""Tells of an event: its kind, its step, its values."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call of `pretrain` ended."""

    step: int
    finished: bool
    summary: dict[str, Any]
    """The last line of metrics.jsonl where the run is finished, else empty."""


def pretrain(
    config: Config,
    workdir: str | Path,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    profile_steps: range = range(0),
    wandb: str | None = None,
) -> Outcome:
    """Trains in `workdir` from where it stands to the end, or until `should_stop`, and saves.

    Interrupted at any moment and called again with the same arguments, the parameters end bit for bit the same (on
    the same devices). With several processes each calls it; they stop after the same step, whichever is asked to, and
    the first one alone writes what people read. A trace of `profile_steps`, counted from 1, goes into
    `workdir`/profile; `wandb` names a project that metrics are sent to besides. Raises `UsageError` or `UserError`
    before anything is written where settings or rows are wrong.
    """
    workdir = place(workdir)
    if config.data.path is None:
        raise UsageError(
            "data.path names no rows; set it (on the command line --data) to a folder that `prepare --out` makes"
        )
    info = read_rows_info(fetched(config.data.path))
    config = resolve(config, info)
    if profile_steps and profile_steps[-1] > config.train.steps:
        raise UsageError(f"--profile asks for step {profile_steps[-1]}, and train.steps={config.train.steps}")
    mesh = make_mesh(config.mesh)
    check_batch(config.train.batch_size, config.train.accumulate, mesh)
    check_same("settings", json.dumps(config_to_dict(config)))
    check_shared(workdir)
    with on_first(lambda: open_workdir(workdir, config, info)) or contextlib.nullcontext():
        return _run(config, info, workdir, mesh, should_stop, profile_steps, wandb)


def resolve(config: Config, info: RowsInfo) -> Config:
    """The config with what the rows decide filled in, every duration in steps. Raises `UsageError` on a clash."""
    if config.data.length not in (None, info.length):
        raise UsageError(
            f"data.length={config.data.length}, but {info.path} holds rows of {info.length} slots; prepare others"
        )
    if config.model.vocab_size is not None and config.model.vocab_size < info.vocab_size:
        raise UsageError(f"model.vocab_size={config.model.vocab_size} is below the tokenizer's {info.vocab_size}")
    model = dataclasses.replace(config.model, vocab_size=config.model.vocab_size or info.vocab_size)
    check_encoder(model, info.length)
    if config.objective == "rtd":
        check_encoder(generator_config(model, config.rtd), info.length)
    train = config.train
    steps = functools.partial(
        to_steps,
        tokens_per_step=train.batch_size * info.length,
        steps_per_epoch=info.train.rows / train.batch_size,
    )
    total = steps(train.steps, "train.steps", run=None)
    every = {
        name: steps(getattr(train, name), f"train.{name}", run=total)
        for name in ("log_every", "eval_every", "checkpoint_every", "keep_every")
    }
    warmup = steps(config.optimizer.warmup, "optimizer.warmup", run=total)
    if train.batch_size > info.train.rows:
        raise UsageError(f"train.batch_size={train.batch_size} is more than the {info.train.rows} rows of {info.path}")
    if total < 1:
        raise UsageError(f"train.steps={train.steps!r} is no step at all")
    if train.keep_best and (
        0 in (every["eval_every"], every["checkpoint_every"]) or every["eval_every"] % every["checkpoint_every"]
    ):
        raise UsageError(
            f"train.keep_best={train.keep_best} wants a checkpoint at every validation; make train.eval_every="
            f"{train.eval_every!r} a multiple of train.checkpoint_every={train.checkpoint_every!r}"
        )
    if warmup > total:
        raise UsageError(
            f"optimizer.warmup={config.optimizer.warmup!r} is {warmup} steps, more than train.steps={total}; "
            'shorten it, to a share of the run for instance: --config.optimizer.warmup="8 %"'
        )
    return dataclasses.replace(
        config,
        model=model,
        data=dataclasses.replace(config.data, length=info.length),
        train=dataclasses.replace(train, steps=total, **every),
        optimizer=dataclasses.replace(config.optimizer, warmup=warmup),
    )


def make_objective(config: Config, words: int | None = None, starts: tuple[bool, ...] | None = None) -> Mlm | Rtd:
    """The objective that a config with `model.vocab_size` names.

    Random words are drawn from the first `words` ids, the tokenizer's, however far the table is padded; `starts` says
    which of them begin a word, for `mlm.unit` other than "token".
    """
    shared = dict(words=words, starts=starts, differentiation=config.differentiation)
    if config.objective == "rtd":
        return Rtd(config.model, config.mlm, config.rtd, **shared)
    return Mlm(config.model, config.mlm, **shared)


def _word_starts(config: Config, info: RowsInfo) -> tuple[bool, ...] | None:
    return None if config.mlm.unit == "token" else tuple(Tokenizer.load(info.path / TOKENIZER_FILE).word_starts())


def _run(
    config: Config,
    info: RowsInfo,
    workdir: Path,
    mesh: Mesh,
    should_stop: Callable[[], bool],
    profile_steps: range,
    wandb: str | None,
) -> Outcome:
    train = config.train
    objective = make_objective(config, info.vocab_size, _word_starts(config, info))
    optimizer = make_optimizer(config.optimizer, train.steps, config.optimizer.warmup)
    with contextlib.ExitStack() as stack:
        keep = Keep(train.keep_checkpoints, train.keep_every, train.keep_best)
        checkpoints = stack.enter_context(Checkpoints(workdir, keep))
        state, seconds = _restore_or_create(config, info, objective, optimizer, mesh, checkpoints, workdir)
        first = int(state.step)
        if first >= train.steps and (summaries := _before(workdir, "summary", first)):
            return Outcome(first, True, summaries[-1])

        evaluate = make_evaluation(objective, info, mesh, batch_size=train.batch_size, rows=train.eval_rows)
        began = time.monotonic()
        watchdog = stack.enter_context(Watchdog(train.watchdog_minutes))
        terminal, track = _open_trackers(stack, config, workdir, first, wandb)
        validation = {event["step"]: _masked_words(event) for event in _before(workdir, "validation", first)}

        def on_step(step: int) -> None:
            watchdog.beat()
            terminal.advance(step)

        def on_evaluate(state: TrainState) -> None:
            values = evaluate(state.params)
            validation[int(state.step)] = _masked_words(values)
            track("validation", int(state.step), values)
            watchdog.beat()

        def on_save(state: TrainState) -> None:
            meta = {
                "step": int(state.step),
                "seconds": seconds + time.monotonic() - began,
                "tokenizer_sha256": info.tokenizer_sha256,
                "validation_loss": validation.get(int(state.step)),
            }
            checkpoints.save(state, meta)
            watchdog.beat()

        train_step = make_train_step(objective, optimizer, mesh, accumulate=train.accumulate, seed=train.seed)
        train_step = stack.enter_context(profile.profiled(train_step, profile_steps, first, workdir / profile.FOLDER))
        on_log, on_skip = _metrics_of_steps(config, info, track, skipped=first - updates_done(state))
        state = fit(
            state,
            train_step,
            _batches(config, info, mesh, first),
            total_steps=train.steps,
            every=Every(train.log_every, train.eval_every, train.checkpoint_every),
            on_step=on_step,
            on_log=on_log,
            on_evaluate=on_evaluate,
            on_save=on_save,
            skipped_updates=train.skipped_updates,
            on_skip=on_skip,
            should_stop=lambda step: agree_on_stop(should_stop(), step),
        )
        step, summary = int(state.step), {}
        checkpoints.wait()
        if step >= train.steps:
            if step not in validation:
                on_evaluate(state)
            summary = _summarise(config, info, state, workdir, seconds + time.monotonic() - began)
            summary["validation_loss"] = validation[step]
            track("summary", step, summary)
        return Outcome(step, step >= train.steps, summary)


def _metrics_of_steps(
    config: Config, info: RowsInfo, track: Track, skipped: int
) -> tuple[Callable[[int, dict[str, float]], None], Callable[[int, list[int], dict[str, float]], None]]:
    """What tells of a window of steps, and of one whose update was left out, as `skipped` were before."""
    meter = _meter(config, info)
    schedule = make_schedule(config.optimizer, config.train.steps, config.optimizer.warmup)

    def on_log(step: int, values: dict[str, float]) -> None:
        if "seconds" in values:
            values |= meter.read(step, values.pop("seconds"))
        rate = float(schedule(max(0, step - skipped - 1)))  # of the last update
        track("train", step, {**values, "learning_rate": rate, **device_memory()})

    def on_skip(step: int, rows: list[int], values: dict[str, float]) -> None:
        nonlocal skipped
        skipped += 1
        track("skipped", step, {**values, "rows": rows})

    return on_log, on_skip


def _open_trackers(
    stack: contextlib.ExitStack, config: Config, workdir: Path, first: int, wandb: str | None
) -> tuple[Terminal, Track]:
    """The terminal, and what tells all trackers of an event; but for the first process they are silent."""
    trackers: list[Any] = []

    def opened(tracker: Any) -> Any:
        trackers.append(stack.enter_context(contextlib.closing(tracker)))
        return tracker

    terminal = opened(Terminal(config.train.steps, first, workdir.name, silent=not is_first()))
    if is_first():
        opened(JsonLines(workdir, first))
        opened(TensorBoard(workdir, first))
        if wandb:
            opened(WeightsAndBiases(wandb, workdir, config_to_dict(config)))
    if first:
        terminal.say(f"{workdir.name}  goes on from step {first}")

    def track(kind: str, step: int, values: dict[str, Any]) -> None:
        for tracker in trackers:
            tracker.write(kind, step, values)

    return terminal, track


def _batches(config: Config, info: RowsInfo, mesh: Mesh, first: int) -> Iterator[dict[str, jax.Array]]:
    """Global batches from step `first` on, of which this process reads its own rows."""
    share = row_share(mesh, config.train.batch_size)
    local = train_batches(
        info,
        batch_size=config.train.batch_size,
        seed=config.train.seed,
        first_step=first,
        prefetch=config.data.prefetch,
        process_index=share.index,
        process_count=share.count,
    )
    return (put_batch(batch, mesh) for batch in local)


def _meter(config: Config, info: RowsInfo) -> Meter:
    chip = chip_of(jax.devices()[0].device_kind)
    share = {}
    if chip:
        peak_flops = chip.bf16_flops * jax.device_count()
        share = dict(flops_per_step=step_flops(config, info.length).total, peak_flops=peak_flops)
    return Meter(config.train.steps, config.train.batch_size * info.length, **share)


def _restore_or_create(
    config: Config,
    info: RowsInfo,
    objective: Mlm | Rtd,
    optimizer: Any,
    mesh: Mesh,
    checkpoints: Checkpoints,
    workdir: Path,
) -> tuple[TrainState, float]:
    """The state the run stands at, and the seconds it has taken so far."""
    restored = checkpoints.restore(abstract_state(objective, optimizer, mesh))
    if restored:
        state, meta = restored
        if meta["tokenizer_sha256"] != info.tokenizer_sha256:
            raise UserError(
                f"the checkpoints in {checkpoints.folder} were trained with another tokenizer than that of "
                f"{info.path}; they belong to another run: put this run's back"
            )
        return state, meta["seconds"]
    if _before(workdir, "summary", config.train.steps):
        raise UserError(
            f"the run in {workdir} is finished, but its {checkpoints.folder.name} are gone; put them back, or train in "
            "a new folder"
        )
    return create_state(objective, optimizer, mesh, config.train.seed), 0.0


def _summarise(config: Config, info: RowsInfo, state: TrainState, workdir: Path, seconds: float) -> dict[str, Any]:
    windows = _before(workdir, "train", config.train.steps)
    speeds = [event["tokens_per_second"] for event in windows if "tokens_per_second" in event]
    return {
        "variant": describe(config),
        "parameters": count_parameters(state.params),
        "steps": config.train.steps,
        "seed": config.train.seed,
        "seconds": round(seconds, 1),
        "tokens_per_second": statistics.median(speeds) if speeds else None,
        "unigram_entropy": info.validation.unigram_entropy,
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    }


def _masked_words(values: Mapping[str, float]) -> float:
    """The loss that all objectives have: that of masked words."""
    return float(values.get("mlm_loss", values["loss"]))  # a file says what is not finite in words


def _before(workdir: Path, kind: str, step: int) -> list[dict[str, Any]]:
    """Events up to `step`: those after it, of a run that was killed, are about to be repeated."""
    return [event for event in read_metrics(workdir) if event["kind"] == kind and event["step"] <= step]
