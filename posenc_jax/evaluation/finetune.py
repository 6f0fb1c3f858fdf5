"""One fine-tuning: a task, a seed, an encoder to start from; a score over the whole dev set out."""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from posenc_jax.config import ModelConfig, OptimizerConfig
from posenc_jax.data.tasks import TaskSpec
from posenc_jax.errors import UserError
from posenc_jax.evaluation.batches import Bucket, evaluation_batches, steps_per_epoch, training_batches
from posenc_jax.evaluation.metrics import majority, score
from posenc_jax.objectives.supervised import SCORE_SCALE, Supervised
from posenc_jax.parallel.mesh import put_batch
from posenc_jax.training.loop import Every, fit
from posenc_jax.training.optimizer import make_optimizer
from posenc_jax.training.state import create_state
from posenc_jax.training.step import make_train_step

LOGS = 5
"""Lines of progress a job."""


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How to fine-tune. What is not here is tupe.md section 3: AdamW (0.9, 0.999), eps 1e-6, decay 0.01 of all
    parameters, clip 1.0, 6 % linear warm-up and then linearly to 0, the last state scored, dropout as pre-trained."""

    learning_rate: float
    epochs: int
    batch_size: int = 32


def default_learning_rate(model: ModelConfig) -> float:
    """5e-5 at width 768, the largest of the published grid, and in inverse proportion for other widths (our choice):
    3e-4 at 128."""
    return 5e-5 * 768 / model.width


def default_epochs(examples: int) -> int:
    """10, as published for all five tasks here; 3 where there are over 10,000 examples, for the time (our choice)."""
    return 10 if examples <= 10_000 else 3


@dataclasses.dataclass(frozen=True)
class Job:
    """All seeds of a task share this: its data as batches want them, and the compiled steps."""

    task: TaskSpec
    protocol: Protocol
    mesh: Mesh
    objective: Supervised
    train: Sequence[Bucket]
    dev: Sequence[Bucket]

    @property
    def steps(self) -> int:
        return self.protocol.epochs * steps_per_epoch(self.train, self.protocol.batch_size)

    @functools.cached_property
    def optimizer(self) -> Any:
        config = OptimizerConfig(learning_rate=self.protocol.learning_rate, schedule="linear")
        return make_optimizer(config, self.steps, round(0.06 * self.steps))

    @functools.cached_property
    def train_step(self) -> Callable:
        return make_train_step(self.objective, self.optimizer, self.mesh)


def make_objective(task: TaskSpec, model: ModelConfig) -> Supervised:
    return Supervised(model, len(task.labels) or 1)


def fine_tune(
    job: Job,
    encoder: Any | None,
    seed: int,
    *,
    on_step: Callable[[int], None] = lambda step: None,
    on_log: Callable[[int, dict[str, float]], None] = lambda step, values: None,
) -> dict[str, Any]:
    """Trains from `encoder` (None: from fresh weights) and scores the last state; `seed` decides head, order, dropout.

    Returns "score" (of the task's first metric), "metrics" (all of them), "majority" (the baseline, by metric),
    "rows" (dev examples), "steps", "seconds" and "notes". A run whose loss stops being finite scores 0 and is noted.
    """
    began = time.monotonic()
    # The step consumes its state, so it gets a copy of the encoder: the next seed starts from the same weights.
    start = None if encoder is None else {"encoder": jax.tree.map(jnp.copy, encoder)}
    state = create_state(job.objective, job.optimizer, job.mesh, seed, params=start)
    batches = training_batches(job.train, job.protocol.batch_size, job.protocol.epochs, seed)
    notes = []
    try:
        state = fit(
            state,
            job.train_step,
            (put_batch(batch, job.mesh) for batch in batches),
            total_steps=job.steps,
            every=Every(log=-(-job.steps // LOGS)),
            on_step=on_step,
            on_log=on_log,
        )
    except UserError as error:
        notes.append(f"failed, scored 0: {str(error).partition(';')[0]}")
        predictions_N = np.full(sum(map(len, job.dev)), np.nan)
    else:
        predictions_N = predict(job, state.params)
    return {**_scores(job, predictions_N, notes), "steps": job.steps, "seconds": round(time.monotonic() - began, 1)}


def predict(job: Job, params: Any) -> np.ndarray:
    """Classes or scores of the dev set in its order; NaN where the logits are not finite."""
    predictions_N = np.zeros(sum(map(len, job.dev)))
    pending = [
        (index_B, _logits(job.objective, params, put_batch(batch, job.mesh)))
        for index_B, batch in evaluation_batches(job.dev, job.protocol.batch_size)
    ]
    for index_B, logits_BxC in pending:
        logits_BxC = np.asarray(logits_BxC)[: len(index_B)]
        answers_B = logits_BxC[:, 0] * SCORE_SCALE if job.objective.classes == 1 else logits_BxC.argmax(-1)
        predictions_N[index_B] = np.where(np.isfinite(logits_BxC).all(-1), answers_B, np.nan)
    return predictions_N


@functools.partial(jax.jit, static_argnums=0)
def _logits(objective: Supervised, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    return objective.predict(params, batch)


def _scores(job: Job, predictions_N: np.ndarray, notes: list[str]) -> dict[str, Any]:
    train_N, labels_N = (_labels(buckets) for buckets in (job.train, job.dev))
    values = {}
    for metric in job.task.metrics:
        values[metric], why = score(metric, labels_N, predictions_N)
        notes = [*notes, why] if why else notes
    return {
        "score": values[job.task.metrics[0]],
        "metrics": values,
        "majority": {metric: majority(metric, train_N, labels_N) for metric in job.task.metrics},
        "rows": len(labels_N),
        "notes": notes,
    }


def _labels(buckets: Sequence[Bucket]) -> np.ndarray:
    """Labels in the split's order."""
    order_N = np.concatenate([bucket.index_N for bucket in buckets])
    return np.concatenate([bucket.labels_N for bucket in buckets])[np.argsort(order_N)]
