"""One fine-tuning: a task, a learning rate, a seed, an encoder to start from; scores over whole dev sets out."""

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from posenc_jax.config import ModelConfig
from posenc_jax.data.tasks import Examples, TaskSpec, column
from posenc_jax.evaluation.glue.batches import (
    Bucket,
    evaluation_batches,
    make_buckets,
    steps_per_epoch,
    training_batches,
)
from posenc_jax.evaluation.glue.protocols import Settings
from posenc_jax.evaluation.metrics import majority, oddities, score
from posenc_jax.interop.pretrained import Pretrained
from posenc_jax.objectives.supervised import SCORE_SCALE, Supervised
from posenc_jax.parallel.forward import jit_forward
from posenc_jax.parallel.mesh import put_batch
from posenc_jax.training.layer_decay import layer_decay
from posenc_jax.training.loop import Every, fit
from posenc_jax.training.optimizer import make_optimizer
from posenc_jax.training.state import TrainState, create_state
from posenc_jax.training.step import make_train_step

LOGS = 5
"""Lines of progress a run."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as read: what to train on, and by split what to score and what to predict for the leaderboard."""

    spec: TaskSpec
    train: Examples
    dev: Mapping[str, Examples]
    test: Mapping[str, Examples]
    data: str
    """Digest of `train` and `dev`."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """All runs of a task share this: its data as batches want them, and the compiled steps."""

    spec: TaskSpec
    settings: Settings
    mesh: Mesh
    objective: Supervised
    train: Sequence[Bucket]
    dev: Mapping[str, Sequence[Bucket]]
    test: Mapping[str, Sequence[Bucket]]

    @property
    def steps(self) -> int:
        return self.settings.epochs * steps_per_epoch(self.train, self.settings.batch_size)

    @functools.cached_property
    def optimizer(self) -> optax.GradientTransformation:
        """Its peak rate is part of its state, so that all rates of a grid share a compiled step."""

        def with_rate(learning_rate: jax.Array) -> optax.GradientTransformation:
            settings = self.settings
            config = dataclasses.replace(settings.optimizer, learning_rate=learning_rate)
            optimizer = make_optimizer(config, self.steps, round(settings.warmup * self.steps))
            if settings.layer_decay is None:
                return optimizer
            layers = self.objective.model.layers
            return optax.chain(optimizer, layer_decay(settings.layer_decay, layers, settings.layer_decay_form))

        return optax.inject_hyperparams(with_rate)(learning_rate=0.0)

    @functools.cached_property
    def train_step(self) -> Callable:
        return make_train_step(self.objective, self.optimizer, self.mesh)


def make_bench(task: Task, settings: Settings, pretrained: Pretrained, mesh: Mesh) -> Bench:
    """Tokenizes a task once for all its runs."""
    model, tokenizer = pretrained.model, pretrained.tokenizer

    def buckets(examples: Examples) -> list[Bucket]:
        return make_buckets(examples, tokenizer, settings.length, model.token_types >= 2, settings.separators)

    return Bench(
        spec=task.spec,
        settings=settings,
        mesh=mesh,
        objective=make_objective(task.spec, model, settings),
        train=buckets(training_examples(task.train, settings)),
        dev={split: buckets(examples) for split, examples in task.dev.items()},
        test={split: buckets(examples) for split, examples in task.test.items()},
    )


def make_objective(task: TaskSpec, model: ModelConfig, settings: Settings) -> Supervised:
    return Supervised(model, len(task.labels) or 1, settings.head, settings.loss)


def training_examples(examples: Examples, settings: Settings) -> Examples:
    """What of a training file is learned from: at most `most_rows`, drawn by seed 0 and in file order; then, where the
    protocol doubles pairs, all of them once more with their texts exchanged."""
    if settings.most_rows and len(examples) > settings.most_rows:
        kept = np.sort(np.random.default_rng(0).permutation(len(examples))[: settings.most_rows])
        examples = dataclasses.replace(
            examples,
            texts_a=[examples.texts_a[row] for row in kept],
            texts_b=examples.texts_b and [examples.texts_b[row] for row in kept],
            labels=examples.labels[kept],
            index=[],
        )
    if settings.doubled and examples.texts_b:
        a, b = examples.texts_a, examples.texts_b
        labels_N = np.concatenate([examples.labels, examples.labels])
        examples = dataclasses.replace(examples, texts_a=a + b, texts_b=b + a, labels=labels_N, index=[])
    return examples


def fine_tune(
    bench: Bench,
    encoder: Any | None,
    learning_rate: float,
    seed: int,
    *,
    on_step: Callable[[int], None] = lambda step: None,
    on_log: Callable[[int, dict[str, float]], None] = lambda step, values: None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains from `encoder` (None: from fresh weights) and scores the last state; `seed` decides head, order, dropout.

    Returns a record's part and the answers to the test splits, float32 [N]: classes, or scores in the file's scale.
    The part: "score" (the mean of the settings' metrics) and "metrics" (all of the task's) of the first dev split,
    "columns" with the same of each and its "majority", "majorities" and "rows"; "steps", "seconds", "notes". Raises
    `UserError` for a loss that is not finite.
    """
    began = time.monotonic()
    # The step consumes its state, so it gets a copy of the encoder: the next run starts from the same weights.
    start = None if encoder is None else {"encoder": jax.tree.map(jnp.copy, encoder)}
    state = create_state(bench.objective, bench.optimizer, bench.mesh, seed, params=start)
    batches = training_batches(bench.train, bench.settings.batch_size, bench.settings.epochs, seed)
    state = fit(
        _with_rate(state, learning_rate),
        bench.train_step,
        (put_batch(batch, bench.mesh) for batch in batches),
        total_steps=bench.steps,
        every=Every(log=-(-bench.steps // LOGS)),
        on_step=on_step,
        on_log=on_log,
    )
    columns, notes = {}, []
    for split, buckets in bench.dev.items():
        name = column(bench.spec, split)
        columns[name], why = _scores(bench, labels_of(buckets), predict(bench, state.params, buckets))
        notes += [f"{name}: {note}" if len(bench.dev) > 1 else note for note in why]
    answers = {split: predict(bench, state.params, buckets) for split, buckets in bench.test.items()}
    first = next(iter(columns.values()))
    part = {
        "score": first["score"],
        "metrics": first["metrics"],
        "columns": columns,
        "steps": bench.steps,
        "seconds": round(time.monotonic() - began, 1),
        "notes": notes,
    }
    return part, {split: answers_N.astype(np.float32) for split, answers_N in answers.items()}


def _with_rate(state: TrainState, learning_rate: float) -> TrainState:
    rate = jnp.full_like(state.opt_state.hyperparams["learning_rate"], learning_rate)
    rate = jax.device_put(rate, state.step.sharding)
    return state.replace(opt_state=state.opt_state._replace(hyperparams={"learning_rate": rate}))


def predict(bench: Bench, params: Any, buckets: Sequence[Bucket]) -> np.ndarray:
    """Classes or scores of a split in its order [N]; NaN where the logits are not finite."""
    predictions_N = np.zeros(sum(map(len, buckets)))
    pending = [
        (index_B, _logits(bench.objective, params, put_batch(batch, bench.mesh)))
        for index_B, batch in evaluation_batches(buckets, bench.settings.batch_size)
    ]
    for index_B, logits_BxC in pending:
        logits_BxC = np.asarray(logits_BxC)[: len(index_B)]
        answers_B = logits_BxC[:, 0] * SCORE_SCALE if bench.objective.classes == 1 else logits_BxC.argmax(-1)
        predictions_N[index_B] = np.where(np.isfinite(logits_BxC).all(-1), answers_B, np.nan)
    return predictions_N


@functools.partial(jit_forward, static_argnums=0)
def _logits(objective: Supervised, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    return objective.predict(params, batch)


def _scores(bench: Bench, labels_N: np.ndarray, predictions_N: np.ndarray) -> tuple[dict[str, Any], list[str]]:
    train_N = labels_of(bench.train)
    values, notes = {}, []
    for metric in bench.spec.metrics:
        values[metric], why = score(metric, labels_N, predictions_N)
        notes += [why] if why else []
    if bench.spec.labels and not notes:
        notes = oddities(labels_N, predictions_N, bench.spec.labels)
    majorities = {metric: majority(metric, train_N, labels_N) for metric in bench.spec.metrics}
    chosen = bench.settings.metrics
    part = {
        "score": statistics.fmean(values[metric] for metric in chosen),
        "metrics": values,
        "majority": statistics.fmean(majorities[metric] for metric in chosen),
        "majorities": majorities,
        "rows": len(labels_N),
    }
    return part, notes


def labels_of(buckets: Sequence[Bucket]) -> np.ndarray:
    """Labels in the split's order."""
    order_N = np.concatenate([bucket.index_N for bucket in buckets])
    return np.concatenate([bucket.labels_N for bucket in buckets])[np.argsort(order_N)]
