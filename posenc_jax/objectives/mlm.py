"""Masked language modelling: some words are hidden on the device, and predicted from the rest."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import DifferentiationConfig, MlmConfig, ModelConfig
from posenc_jax.data.masking import mask_tokens
from posenc_jax.model.encoder import Encoder
from posenc_jax.model.heads import MlmHead
from posenc_jax.objectives import differentiation
from posenc_jax.objectives.cross_entropy import cross_entropy
from posenc_jax.training.objective import Mean, Terms


class MlmNetwork(nn.Module):
    """Encoder and MLM head; the output matrix is the table of word embeddings."""

    config: ModelConfig

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.head = MlmHead(self.config)

    def __call__(
        self, batch: Mapping[str, jax.Array], predicted_BxM: jax.Array, train: bool = False, contiguous: bool = True
    ) -> jax.Array:
        """Batch of "tokens", "segments" and perhaps "positions", slots to predict -> float32 logits [B, M, V]."""
        hidden_BxLxD = self.encoder(
            batch["tokens"], batch["segments"], batch.get("positions"), train=train, contiguous=contiguous
        )
        picked_BxMxD = jnp.take_along_axis(hidden_BxLxD, predicted_BxM[..., None], axis=1)
        return self.head(picked_BxMxD, self.encoder.words)


@dataclasses.dataclass(frozen=True)
class Mlm:
    """Batches of `data.loader`: "tokens", "segments", "row" and, where rows restart them, "positions"."""

    model: ModelConfig
    mlm: MlmConfig = MlmConfig()
    words: int | None = None
    """Ids the tokenizer has, from which random words are drawn; None is all rows of the table."""
    starts: tuple[bool, ...] | None = None
    """Of each id, whether it begins a word; for `mlm.unit` other than "token"."""
    differentiation: DifferentiationConfig = DifferentiationConfig()

    @property
    def coefficients(self) -> dict[str, float]:
        return {"mlm": 1.0, **differentiation.coefficients(self.differentiation)}

    @property
    def network(self) -> MlmNetwork:
        return MlmNetwork(self.model)

    def init(self, key: jax.Array) -> Any:
        word_1x8 = jnp.ones((1, 8), jnp.int32)
        return self.network.init(key, {"tokens": word_1x8, "segments": word_1x8}, word_1x8)["params"]

    def prepare(self, batch: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
        starts_V = None if self.starts is None else jnp.array(self.starts)
        words = self.words or self.model.vocab_size
        return {**batch, **mask_tokens(key, batch["tokens"], batch["row"], words, self.mlm, is_start_V=starts_V)}

    def weights(self, examples: dict[str, jax.Array]) -> dict[str, jax.Array]:
        extra = differentiation.weights(self.differentiation, examples["segments"], self.model.layers)
        return {"mlm": examples["predicted_weight"].sum(), **extra}

    def sums(
        self, params: Any, examples: dict[str, jax.Array], key: jax.Array, train: bool
    ) -> tuple[dict[str, jax.Array], Terms]:
        logits_BxMxV, left = self.network.apply(
            {"params": params},
            examples,
            examples["predicted"],
            train,
            rngs={"dropout": key},
            mutable=differentiation.collections(self.differentiation),
        )
        total, right = masked_sums(logits_BxMxV, examples)
        weights = self.weights(examples)
        extra, metrics = differentiation.sums(self.differentiation, left, weights)
        return {"mlm": total, **extra}, {"accuracy": Mean(right, weights["mlm"]), **metrics}


def masked_sums(logits_BxMxV: jax.Array, examples: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Over the predicted words: the sum of their cross-entropy in nats, and how many are guessed right."""
    loss_BxM, is_right_BxM = cross_entropy(logits_BxMxV, examples["target"])
    weight_BxM = examples["predicted_weight"]
    return (loss_BxM * weight_BxM).sum(), (is_right_BxM * weight_BxM).sum()
