"""Replaced-token detection: a generator fills in masked words, a discriminator finds which were replaced (ELECTRA).

L = generator_weight * L_MLM + discriminator_weight * L_RTD, the first over the masked words, the second over all words
with [CLS] and [SEP]; no gradient goes through the sampling (convbert_and_electra.md 3).
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from posenc_jax.config import DifferentiationConfig, MlmConfig, ModelConfig, PositionConfig, RtdConfig
from posenc_jax.errors import UsageError
from posenc_jax.model.encoder import Encoder
from posenc_jax.model.heads import RtdHead
from posenc_jax.objectives import differentiation
from posenc_jax.objectives.mlm import Mlm, MlmNetwork, masked_sums
from posenc_jax.training.objective import Area, Mean, Terms

BINS = 1024
"""Of the scores behind the area under the ROC curve, `_bin` says how they lie."""


class Discriminator(nn.Module):
    """Encoder and replaced-token head."""

    config: ModelConfig

    def setup(self) -> None:
        self.encoder = Encoder(self.config)
        self.rtd_head = RtdHead(self.config)

    def __call__(self, batch: Mapping[str, jax.Array], tokens_BxL: jax.Array, train: bool = False) -> jax.Array:
        """Words, some replaced, with the batch's "segments" and perhaps "positions" -> float32 logits [B, L]."""
        hidden_BxLxD = self.encoder(tokens_BxL, batch["segments"], batch.get("positions"), train=train, contiguous=True)
        return self.rtd_head(hidden_BxLxD)


@dataclasses.dataclass(frozen=True)
class Rtd:
    """Batches as those of `Mlm`; parameters {"encoder", "rtd_head"} of the discriminator and {"generator": {"encoder",
    "head"}}, where what the generator shares stands under the discriminator alone."""

    model: ModelConfig
    mlm: MlmConfig = MlmConfig(random_share=0.0, kept_share=0.15)
    rtd: RtdConfig = RtdConfig()
    words: int | None = None
    starts: tuple[bool, ...] | None = None
    differentiation: DifferentiationConfig = DifferentiationConfig()
    """Of the discriminator."""

    @property
    def coefficients(self) -> dict[str, float]:
        own = {"mlm": self.rtd.generator_weight, "rtd": self.rtd.discriminator_weight}
        return {**own, **differentiation.coefficients(self.differentiation)}

    @property
    def generator(self) -> MlmNetwork:
        return MlmNetwork(generator_config(self.model, self.rtd))

    def init(self, key: jax.Array) -> Any:
        generator_key, key = jax.random.split(key)
        word_1x8 = jnp.ones((1, 8), jnp.int32)
        batch = {"tokens": word_1x8, "segments": word_1x8}
        params = Discriminator(self.model).init(key, batch, word_1x8)["params"]
        if self.rtd.generator == "uniform":
            return params
        generator = self.generator.init(generator_key, batch, word_1x8)["params"]
        return {**params, "generator": self._own(generator, params["encoder"])}

    def prepare(self, batch: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
        mask_key, sample_key = jax.random.split(key)
        masked = Mlm(self.model, self.mlm, self.words, self.starts).prepare(batch, mask_key)
        # Each row samples with a key of its own: not by the slice or device it is worked through in.
        row_keys = jax.vmap(lambda row: jax.random.key_data(jax.random.fold_in(sample_key, row)))(batch["row"])
        return {**masked, "original": batch["tokens"], "sample_key": row_keys}

    def weights(self, examples: dict[str, jax.Array]) -> dict[str, jax.Array]:
        extra = differentiation.weights(self.differentiation, examples["segments"], self.model.layers)
        is_word_BxL = (examples["segments"] > 0).astype(jnp.float32)
        return {"mlm": examples["predicted_weight"].sum(), "rtd": is_word_BxL.sum(), **extra}

    def sums(
        self, params: Any, examples: dict[str, jax.Array], key: jax.Array, train: bool
    ) -> tuple[dict[str, jax.Array], Terms]:
        generator_key, key = jax.random.split(key)
        logits_BxMxV = self._generate(params, examples, generator_key, train)
        generator_total, guessed = masked_sums(logits_BxMxV, examples)
        tokens_BxL, is_replaced_BxL, sampled_right = self._replace(logits_BxMxV, examples)
        logits_BxL, left = Discriminator(self.model).apply(
            {"params": {name: params[name] for name in ("encoder", "rtd_head")}},
            examples,
            tokens_BxL,
            train,
            rngs={"dropout": key},
            mutable=differentiation.collections(self.differentiation),
        )
        weights = self.weights(examples)
        is_word_BxL = (examples["segments"] > 0).astype(jnp.float32)
        loss_BxL = optax.sigmoid_binary_cross_entropy(logits_BxL, is_replaced_BxL)
        extra, metrics = differentiation.sums(self.differentiation, left, weights)
        if self.rtd.generator != "uniform":
            metrics["generator_accuracy"] = Mean(guessed, weights["mlm"])
        metrics |= {
            "sample_accuracy": Mean(sampled_right, weights["mlm"]),
            **detection(logits_BxL, is_replaced_BxL, is_word_BxL),
        }
        return {"mlm": generator_total, "rtd": (loss_BxL * is_word_BxL).sum(), **extra}, metrics

    def _own(self, generator: Any, encoder: Any) -> Any:
        """The generator without what it shares with the discriminator's encoder."""
        if self.rtd.generator == "discriminator":
            return {"head": generator["head"]}
        flat, there = flatten_dict(generator["encoder"]), flatten_dict(encoder)
        kept = {
            path: x
            for path, x in flat.items()
            if not (self.rtd.share_embeddings and _is_shared(path) and path in there)
        }
        return {"encoder": unflatten_dict(kept), "head": generator["head"]}

    def generator_params(self, params: Any) -> Any:
        """The generator's parameters, {"encoder", "head"}, with what it shares put back."""
        own = params["generator"]
        if self.rtd.generator == "discriminator":
            return {"encoder": params["encoder"], **own}
        if not self.rtd.share_embeddings:
            return own
        shared = {path: x for path, x in flatten_dict(params["encoder"]).items() if _is_shared(path)}
        return {"encoder": unflatten_dict({**shared, **flatten_dict(own["encoder"])}), "head": own["head"]}

    def _generate(self, params: Any, examples: Mapping[str, jax.Array], key: jax.Array, train: bool) -> jax.Array:
        """Float32 logits [B, M, V] at the masked slots."""
        if self.rtd.generator == "uniform":
            return jnp.zeros((*examples["predicted"].shape, self.words or self.model.vocab_size))
        return self.generator.apply(
            {"params": self.generator_params(params)},
            examples,
            examples["predicted"],
            train,
            rngs={"dropout": key},
        )

    def _replace(
        self, logits_BxMxV: jax.Array, examples: Mapping[str, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The original words with samples in the masked slots [B, L], which of them differ from the original, float32
        [B, L], and how many samples are the original word."""
        logits_BxMxV = jax.lax.stop_gradient(logits_BxMxV[..., : self.words])
        sample_BxM = jax.vmap(
            lambda key, logits_MxV: jax.random.categorical(jax.random.wrap_key_data(key), logits_MxV)
        )(examples["sample_key"], logits_BxMxV)
        used_BxM = examples["predicted_weight"]
        tokens_BxL = jax.vmap(_write)(examples["original"], examples["predicted"], sample_BxM, used_BxM)
        is_replaced_BxL = (tokens_BxL != examples["original"]).astype(jnp.float32)
        return tokens_BxL, is_replaced_BxL, ((sample_BxM == examples["target"]) * used_BxM).sum()


def _write(tokens_L: jax.Array, slots_M: jax.Array, samples_M: jax.Array, used_M: jax.Array) -> jax.Array:
    """Samples in their slots. Of a slot drawn several times, which only drawing with replacement brings, it is the
    mean of the samples' ids, rounded down, as ELECTRA's code has it (convbert_and_electra.md 3.3)."""
    used_M = used_M.astype(jnp.int32)
    count_L = jnp.zeros_like(tokens_L).at[slots_M].add(used_M)
    total_L = jnp.zeros_like(tokens_L).at[slots_M].add(used_M * samples_M)
    return jnp.where(count_L > 0, total_L // jnp.maximum(count_L, 1), tokens_L)


def detection(logits_BxL: jax.Array, is_replaced_BxL: jax.Array, is_word_BxL: jax.Array) -> Terms:
    """How well replaced words are told from real ones, a logit above 0 saying "replaced"; all arrays float32 [B, L]."""
    found_BxL = (logits_BxL > 0) * is_word_BxL
    hits = (found_BxL * is_replaced_BxL).sum()
    replaced_BxL, words = is_replaced_BxL * is_word_BxL, is_word_BxL.sum()
    right_BxL = ((logits_BxL > 0) == (is_replaced_BxL > 0)) * is_word_BxL
    bins_BxL = _bin(logits_BxL)
    zeros_K = jnp.zeros(BINS)
    return {
        "replaced": Mean(replaced_BxL.sum(), words),
        "detection_accuracy": Mean(right_BxL.sum(), words),
        "precision": Mean(hits, found_BxL.sum()),
        "recall": Mean(hits, replaced_BxL.sum()),
        "auc": Area(zeros_K.at[bins_BxL].add(replaced_BxL), zeros_K.at[bins_BxL].add(is_word_BxL - replaced_BxL)),
    }


def _bin(logits: jax.Array) -> jax.Array:
    """Number of a logit's bin: steps of 1.6e-4 near 0, of 1.6 % from 0.01 on, up to +-18."""
    scaled = jnp.arcsinh(logits.astype(jnp.float32) / 0.01) / math.asinh(18 / 0.01)
    return jnp.clip(jnp.round((scaled + 1) / 2 * (BINS - 1)), 0, BINS - 1).astype(jnp.int32)


def generator_config(model: ModelConfig, rtd: RtdConfig) -> ModelConfig:
    """The generator of a discriminator `model`: `generator_size` times as wide, with as many times fewer heads
    (convbert_and_electra.md 3.2). Raises `UsageError` where that makes no whole number."""
    if rtd.generator != "own":
        return model
    width, heads = round(model.width * rtd.generator_size), max(1, round(model.heads * rtd.generator_size))
    layers = round(model.layers * rtd.generator_layers)
    if width % heads or not width or not layers:
        raise UsageError(
            f"rtd.generator_size={rtd.generator_size} makes a generator of {layers} layers, {width} wide, with {heads} "
            f"heads, of model.width={model.width} and model.heads={model.heads}; its width must be a multiple of its "
            "heads"
        )
    positions = model.positions
    if rtd.generator_scheme is not None:
        positions = PositionConfig(scheme=rtd.generator_scheme, max_length=positions.max_length)
    return dataclasses.replace(
        model,
        layers=layers,
        width=width,
        heads=heads,
        feed_forward_width=model.feed_forward_width * width // model.width,
        embedding_width=(model.embedding_width or model.width) if rtd.share_embeddings else None,
        positions=positions,
    )


def _is_shared(path: tuple[str, ...]) -> bool:
    """Whether a parameter of an encoder is of its embeddings: words, types, learned positions, the norm after them.
    Other schemes' tables stay each network's own (tupe.md 1.7)."""
    return path[0] in ("words", "types", "norm") or path[:2] == ("positions", "learned")
