"""A pre-training run from a config and a workdir: what `pretrain` calls, and a notebook may."""

import dataclasses
import functools
import operator
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from posenc_jax.config import Config, describe
from posenc_jax.data.loader import train_batches, validation_batches
from posenc_jax.data.rows import TOKENIZER_FILE, RowsInfo, read_rows_info
from posenc_jax.data.tokenizer import Tokenizer
from posenc_jax.durations import to_steps
from posenc_jax.errors import UsageError, UserError
from posenc_jax.model.encoder import check_encoder
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.objectives.rtd import Rtd, generator_config
from posenc_jax.parallel.mesh import check_batch, make_mesh, put_batch
from posenc_jax.training.checkpoint import Checkpoints
from posenc_jax.training.loop import Every, fit
from posenc_jax.training.optimizer import make_optimizer, make_schedule
from posenc_jax.training.state import TrainState, abstract_state, count_parameters, create_state
from posenc_jax.training.step import make_eval_step, make_train_step, means
from posenc_jax.training.trackers import JsonLines, TensorBoard, Terminal, read_metrics
from posenc_jax.training.workdir import open_workdir

EVALUATION_KEY = 20200628
"""Seed of the masks of the validation loss: the same for every run, step and variant."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call of `pretrain` ended."""

    step: int
    finished: bool
    summary: dict[str, Any]
    """The last line of metrics.jsonl where the run is finished, else empty."""


def pretrain(config: Config, workdir: str | Path, *, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    """Trains in `workdir` from where it stands to the end, or until `should_stop`, and saves.

    Interrupted at any moment and called again with the same arguments, the parameters end bit for bit the same (on
    the same devices). Raises `UsageError` or `UserError` before anything is written where settings or rows are wrong.
    """
    workdir = Path(workdir)
    if config.data.path is None:
        raise UsageError(
            "data.path names no rows; set it (on the command line --data) to a folder that `prepare --out` makes"
        )
    info = read_rows_info(config.data.path)
    config = resolve(config, info)
    mesh = make_mesh(config.mesh)
    check_batch(config.train.batch_size, config.train.accumulate, mesh)
    with open_workdir(workdir, config, info):
        return _run(config, info, workdir, mesh, should_stop)


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


def _run(config: Config, info: RowsInfo, workdir: Path, mesh: Any, should_stop: Callable[[], bool]) -> Outcome:
    train, tokens_per_step = config.train, config.train.batch_size * info.length
    objective = make_objective(config, info.vocab_size, _word_starts(config, info))
    optimizer = make_optimizer(config.optimizer, train.steps, config.optimizer.warmup)
    schedule = make_schedule(config.optimizer, train.steps, config.optimizer.warmup)
    checkpoints = Checkpoints(workdir, train.keep_checkpoints)
    state, seconds = _restore_or_create(config, info, objective, optimizer, mesh, checkpoints, workdir)
    first = int(state.step)
    if first >= train.steps and (summary := _summary(workdir)):
        checkpoints.close()
        return Outcome(first, True, summary)

    terminal = Terminal(train.steps, first, workdir.name)
    trackers = (JsonLines(workdir, first), TensorBoard(workdir, first), terminal)
    began = time.monotonic()

    def track(kind: str, step: int, values: dict[str, float]) -> None:
        for tracker in trackers:
            tracker.write(kind, step, values)

    def on_log(step: int, values: dict[str, float]) -> None:
        if "seconds" in values:
            values["tokens_per_second"] = tokens_per_step / values.pop("seconds")
        track("train", step, {**values, "learning_rate": float(schedule(step - 1))})

    def on_save(state: TrainState) -> None:
        meta = {
            "step": int(state.step),
            "seconds": seconds + time.monotonic() - began,
            "tokenizer_sha256": info.tokenizer_sha256,
        }
        checkpoints.save(state, meta)

    evaluate = _make_evaluation(config, info, objective, mesh)
    batches = train_batches(
        info,
        batch_size=train.batch_size,
        seed=train.seed,
        first_step=first,
        prefetch=config.data.prefetch,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
    )
    if first:
        terminal.say(f"{workdir.name}  goes on from step {first}")
    try:
        state = fit(
            state,
            make_train_step(objective, optimizer, mesh, accumulate=train.accumulate, seed=train.seed),
            (put_batch(batch, mesh) for batch in batches),
            total_steps=train.steps,
            every=Every(train.log_every, train.eval_every, train.checkpoint_every),
            on_step=terminal.advance,
            on_log=on_log,
            on_evaluate=lambda state: track("validation", int(state.step), evaluate(state.params)),
            on_save=on_save,
            should_stop=should_stop,
        )
        step, summary = int(state.step), {}
        checkpoints.wait()
        if step >= train.steps:
            summary = _summarise(config, info, state, workdir, seconds + time.monotonic() - began)
            if not any(event["kind"] == "validation" and event["step"] == step for event in read_metrics(workdir)):
                track("validation", step, evaluate(state.params))
            last = _last(workdir, "validation")
            summary["validation_loss"] = last.get("mlm_loss", last["loss"])
            track("summary", step, summary)
        return Outcome(step, step >= train.steps, summary)
    finally:
        for tracker in trackers:
            tracker.close()
        checkpoints.close()


def _restore_or_create(
    config: Config,
    info: RowsInfo,
    objective: Mlm | Rtd,
    optimizer: Any,
    mesh: Any,
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
    if _summary(workdir):
        raise UserError(
            f"the run in {workdir} is finished, but its {checkpoints.folder.name} are gone; put them back, or train in "
            "a new folder"
        )
    return create_state(objective, optimizer, mesh, config.train.seed), 0.0


def _make_evaluation(
    config: Config, info: RowsInfo, objective: Mlm | Rtd, mesh: Any
) -> Callable[[Any], dict[str, float]]:
    """Validation over the same held-out rows with the same masks each time."""
    look = make_eval_step(objective, mesh)
    batches = validation_batches(info, batch_size=config.train.batch_size, rows=config.train.eval_rows)
    share = config.train.batch_size // jax.process_count()
    mine = slice(jax.process_index() * share, (jax.process_index() + 1) * share)
    key = jax.random.key(EVALUATION_KEY)

    def evaluate(params: Any) -> dict[str, float]:
        looks = [look(params, put_batch({n: rows[mine] for n, rows in batch.items()}, mesh), key) for batch in batches]
        terms = functools.reduce(lambda one, other: jax.tree.map(operator.add, one, other), looks)
        values = {name: float(value) for name, value in means(terms).items()}
        total = sum(factor * values[f"{name}_loss"] for name, factor in objective.coefficients.items())
        if len(objective.coefficients) == 1:
            del values["mlm_loss"]  # it is the total
        return {"loss": total, **values}

    return evaluate


def _summarise(config: Config, info: RowsInfo, state: TrainState, workdir: Path, seconds: float) -> dict[str, Any]:
    speeds = [event["tokens_per_second"] for event in _timed(workdir)]
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


def _timed(workdir: Path) -> list[dict[str, Any]]:
    return [event for event in read_metrics(workdir) if event["kind"] == "train" and "tokens_per_second" in event]


def _last(workdir: Path, kind: str) -> dict[str, Any] | None:
    return next((event for event in reversed(read_metrics(workdir)) if event["kind"] == kind), None)


def _summary(workdir: Path) -> dict[str, Any] | None:
    return _last(workdir, "summary")
