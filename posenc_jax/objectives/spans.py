"""Fine-tuning to find the answer to a question in a passage (convbert_and_electra.md 5)."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.model.encoder import Encoder
from posenc_jax.model.span_heads import SPAN_HEADS, Beams, SpanLogits
from posenc_jax.training.objective import Mean, Terms

HeadName = Literal["joint", "plain"]
COEFFICIENTS = {"joint": {"start": 0.5, "end": 0.5, "impossible": 0.5}, "plain": {"start": 0.5, "end": 0.5}}


class SpanNetwork(nn.Module):
    """Encoder and span head."""

    config: ModelConfig
    head_name: HeadName

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.head = SPAN_HEADS[self.head_name](self.config)

    def __call__(self, batch: Mapping[str, jax.Array], train: bool = False) -> SpanLogits:
        return self.head(self._hidden(batch, train), batch["allowed"], batch["start"])

    def search(self, batch: Mapping[str, jax.Array], beam: int) -> Beams:
        return self.head.search(self._hidden(batch, False), batch["allowed"], beam)

    def _hidden(self, batch: Mapping[str, jax.Array], train: bool) -> jax.Array:
        return self.encoder(batch["tokens"], batch["segments"], types_BxL=batch.get("types"), train=train)


@dataclasses.dataclass(frozen=True)
class Spans:
    """Batches of "tokens", "segments" [B, L], "allowed" [B, L] (1 where an answer may start or end), "start", "end" [B]
    (slots, 0 where the row holds no answer), "impossible" [B] (the question has none), "weight" [B], which is 0 for
    rows that only fill up, and "seed" [B] as of `Supervised`; "types" [B, L] where the model has token types.

    Loss: (CE(start) + CE(end)) / 2, and for the joint head + BCE(impossible) / 2. `reduction`: over the rows of a
    batch, "mean" or ELECTRA's "sum", with which a clip at norm 1 is normally at work.
    """

    model: ModelConfig
    head: HeadName
    reduction: Literal["mean", "sum"] = "mean"

    @property
    def coefficients(self) -> Mapping[str, float]:
        return COEFFICIENTS[self.head]

    @property
    def network(self) -> SpanNetwork:
        return SpanNetwork(self.model, self.head)

    def init(self, key: jax.Array) -> Any:
        word_1x8, one_1 = jnp.ones((1, 8), jnp.int32), jnp.ones(1, jnp.int32)
        batch = {"tokens": word_1x8, "segments": word_1x8, "allowed": word_1x8, "start": one_1}
        return self.network.init(key, batch)["params"]

    def prepare(self, batch: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
        del key
        return batch

    def weights(self, examples: dict[str, jax.Array]) -> dict[str, jax.Array]:
        rows = examples["weight"].sum()
        return dict.fromkeys(self.coefficients, rows if self.reduction == "mean" else jnp.ones_like(rows))

    def sums(
        self, params: Any, examples: dict[str, jax.Array], key: jax.Array, train: bool
    ) -> tuple[dict[str, jax.Array], Terms]:
        rngs = {"dropout": jax.random.fold_in(key, examples["seed"][0])}
        logits = self.network.apply({"params": params}, examples, train, rngs=rngs)
        weight_B = examples["weight"]
        losses = {
            "start": optax.softmax_cross_entropy_with_integer_labels(logits.start_BxL, examples["start"]),
            "end": optax.softmax_cross_entropy_with_integer_labels(logits.end_BxL, examples["end"]),
        }
        if logits.impossible_B is not None:
            flag_B = examples["impossible"].astype(logits.impossible_B.dtype)
            losses["impossible"] = optax.sigmoid_binary_cross_entropy(logits.impossible_B, flag_B)
        right_B = (logits.start_BxL.argmax(-1) == examples["start"]) & (logits.end_BxL.argmax(-1) == examples["end"])
        metrics = {"span_accuracy": Mean((right_B * weight_B).sum(), weight_B.sum())}
        return {name: (loss_B * weight_B).sum() for name, loss_B in losses.items()}, metrics

    def search(self, params: Any, batch: dict[str, jax.Array], beam: int) -> Beams:
        """The `beam` x `beam` most likely spans of each row, without dropout."""
        return self.network.apply({"params": params}, batch, beam, method="search")
