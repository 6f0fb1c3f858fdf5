"""Fine-tuning: a fresh head on [CLS] answers with a class or a score (tupe.md 1.6 and 3)."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.model.encoder import Encoder
from posenc_jax.model.heads import ClassificationHead, SingleHead
from posenc_jax.training.objective import Mean, Terms

SCORE_SCALE = 5.0
"""Scores are learned divided by this, so that a fresh head starts near them (STS-B: 0 to 5)."""


Head = Literal["pooler", "single"]
"""A dense layer and tanh under the answer (BERT, TUPE), or nothing (ELECTRA, ConvBERT)."""


class SupervisedNetwork(nn.Module):
    """Encoder and classification head."""

    config: ModelConfig
    classes: int
    head_kind: Head = "pooler"

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.head = {"pooler": ClassificationHead, "single": SingleHead}[self.head_kind](self.classes, self.config)

    def __call__(
        self,
        tokens_BxL: jax.Array,
        segments_BxL: jax.Array,
        types_BxL: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """One text or pair a row, [CLS] first -> float32 logits [B, classes]."""
        hidden_BxLxD = self.encoder(tokens_BxL, segments_BxL, types_BxL=types_BxL, train=train)
        return self.head(hidden_BxLxD[:, 0], train)


@dataclasses.dataclass(frozen=True)
class Supervised:
    """Fine-tuning on one task (tupe.md 3, convbert_and_electra.md 5).

    Batches of "tokens", "segments" [B, L], "labels" [B] and "weight" [B], which is 0 for rows that only fill up;
    "types" [B, L] where the model has token types.

    "seed" [B], the same in every row, makes dropout that run's own: one compiled step serves the seeds of a task.
    `classes` = 1 is regression: squared error of the bare logit against labels / 5. Else labels are classes and the
    loss is their cross-entropy. `reduction`: over the rows of a batch, "mean" or ELECTRA's "sum".
    """

    model: ModelConfig
    classes: int
    head: Head = "pooler"
    reduction: Literal["mean", "sum"] = "mean"
    coefficients: Mapping[str, float] = dataclasses.field(default_factory=lambda: {"supervised": 1.0}, hash=False)

    @property
    def network(self) -> SupervisedNetwork:
        return SupervisedNetwork(self.model, self.classes, self.head)

    def init(self, key: jax.Array) -> Any:
        word_1x8 = jnp.ones((1, 8), jnp.int32)
        return self.network.init(key, word_1x8, word_1x8)["params"]

    def prepare(self, batch: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
        del key
        return batch

    def weights(self, examples: dict[str, jax.Array]) -> dict[str, jax.Array]:
        rows = examples["weight"].sum()
        return {"supervised": rows if self.reduction == "mean" else jnp.ones_like(rows)}

    def sums(
        self, params: Any, examples: dict[str, jax.Array], key: jax.Array, train: bool
    ) -> tuple[dict[str, jax.Array], Terms]:
        logits_BxC = self.network.apply(
            {"params": params},
            examples["tokens"],
            examples["segments"],
            examples.get("types"),
            train,
            rngs={"dropout": jax.random.fold_in(key, examples["seed"][0])},
        )
        labels_B, weight_B = examples["labels"], examples["weight"]
        if self.classes == 1:
            loss_B = jnp.square(logits_BxC[:, 0] - labels_B / SCORE_SCALE)
            return {"supervised": (loss_B * weight_B).sum()}, {}
        loss_B = optax.softmax_cross_entropy_with_integer_labels(logits_BxC, labels_B)
        right_B = (logits_BxC.argmax(-1) == labels_B).astype(jnp.float32)
        accuracy = Mean((right_B * weight_B).sum(), weight_B.sum())
        return {"supervised": (loss_B * weight_B).sum()}, {"accuracy": accuracy}

    def predict(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """Float32 logits [B, classes] without dropout; a score is the logit times 5."""
        return self.network.apply({"params": params}, batch["tokens"], batch["segments"], batch.get("types"))
