"""Self-attention of many heads: content, position terms, one mask, softmax in float32."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Dropout, Projection, repeated
from posenc_jax.model.compatibility import compatibility
from posenc_jax.model.convolution import BY_HEADS, Convolution
from posenc_jax.model.dispatch import XLA, attention_kernel, mixed_by_attention
from posenc_jax.model.similarity import HEADS, head_cosines
from posenc_jax.parallel.mesh import constrain
from posenc_jax.positions import Places, Scheme

MASKED = -1e30
"""Logit of a pair that may not meet. Finite: a row with no pair left is uniform, not NaN."""

WEIGHTS = "attention_weights"
"""Collection in which each layer leaves its softmax rows [B, H, L, L] before dropout, query by key, when a caller makes
it mutable."""


@struct.dataclass
class Context:
    """What all layers of one forward pass are told beside their input."""

    segments_BxL: jax.Array
    """0 is padding; words meet only words of their own segment."""
    places: Places
    bias_BxHxLxL: jax.Array | None
    """The scheme's answer to `shared_bias`."""
    tables: Any
    """The scheme's answer to `shared_tables`."""

    def may_meet(self) -> jax.Array:
        """Boolean [B, L, L], query by key.

        Padding meets every word, as published masks, which are on keys alone, have it: its values matter where
        convolutions leak (convbert_and_electra.md 1.3).
        """
        query_BxLx1, key_Bx1xL = self.segments_BxL[:, :, None], self.segments_BxL[:, None, :]
        return ((query_BxLx1 == key_Bx1xL) | (query_BxLx1 == 0)) & (key_Bx1xL > 0)


class Attention(nn.Module):
    """softmax(q . k / sqrt(terms * d) + position terms) v, projected back to the width (tupe.md 1.0, 1.4).

    In a mixed layer convolution heads stand behind the attention heads, and share their queries (ConvBERT). A kernel
    that takes the case mixes the values without the logits of all rows in memory (`model.dispatch`).
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BxLxD: jax.Array, context: Context, train: bool) -> jax.Array:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        exact = jnp.promote_types(dtype, jnp.float32)
        places, tables = context.places, context.tables
        meet, scheme = compatibility(config), Scheme(config, "layer", name="positions")

        q_BxLxHxd, k_BxLxHxd = (constrain(x, *BY_HEADS) for x in meet(x_BxLxD))
        heads, inward = (config.attention_heads, config.head_width), ("embed", "heads", "head_width")
        v_BxLxHxd = constrain(Projection(config, heads, inward, dtype=dtype, name="value")(x_BxLxD), *BY_HEADS)
        scaled_BxLxHxd = q_BxLxHxd * scheme.scale
        placed_q, placed_k = scheme.queries_and_keys(scaled_BxLxHxd, k_BxLxHxd, places, tables)
        terms_BxHxLxL = scheme.content_terms(scaled_BxLxHxd, k_BxLxHxd, places, tables, meet)

        is_run = not self.is_initializing()
        counts_heads, shows_weights = (self.is_mutable_collection(name) and is_run for name in (HEADS, WEIGHTS))
        rate = config.attention_dropout if train else 0.0
        dropout, bias_BxHxLxL = Dropout(rate), context.bias_BxHxLxL
        reasons = (
            "a term of words and positions is added to the logits" if terms_BxHxLxL is not None else None,
            "the scheme reads the weights" if scheme.reads_weights else None,
            "the loss reads the weights" if counts_heads else None,
            "the weights are asked for" if shows_weights else None,
            "positions differ from row to row" if bias_BxHxLxL is not None and len(bias_BxHxLxL) > 1 else None,
        )
        has_bias = bias_BxHxLxL is not None
        kernel = XLA
        if is_run:
            kernel = attention_kernel(config, x_BxLxD.shape[:2], has_bias=has_bias, reasons=reasons)
        if kernel != XLA:
            bias_HxLxL = bias_BxHxLxL[0] if has_bias else None
            seed_2 = dropout.seed() if rate else None
            words = (placed_q, placed_k, v_BxLxHxd, context.segments_BxL)
            mixed_BxLxHxd = mixed_by_attention(*words, bias_HxLxL, rate, seed_2)
        else:
            logits_BxHxLxL = jnp.einsum("BQHd,BKHd->BHQK", placed_q, placed_k, preferred_element_type=exact)
            if has_bias and len(bias_BxHxLxL) == 1:
                bias_BxHxLxL = repeated(bias_BxHxLxL[0], (len(x_BxLxD),))
            for term_BxHxLxL in (terms_BxHxLxL, bias_BxHxLxL):
                logits_BxHxLxL = logits_BxHxLxL if term_BxHxLxL is None else logits_BxHxLxL + term_BxHxLxL
            logits_BxHxLxL = constrain(logits_BxHxLxL, "batch", "heads", "length", "length")
            may_meet_BxLxL = context.may_meet()
            # Added, not chosen: the backward pass needs no mask then, and the sum is part of what XLA fuses around it.
            # (Only in a row of padding alone do the even weights pass a gradient on, and no loss asks for one there.)
            mask_BxLxL = jnp.where(may_meet_BxLxL, jnp.zeros((), exact), MASKED)
            weights_BxHxLxL = jax.nn.softmax(logits_BxHxLxL + mask_BxLxL[:, None])
            if counts_heads:
                for name, total in head_cosines(weights_BxHxLxL, may_meet_BxLxL, context.segments_BxL).items():
                    self.sow(HEADS, name, total)
            if shows_weights:
                self.sow(WEIGHTS, "weights", weights_BxHxLxL)
            weights_BxHxLxL = dropout(weights_BxHxLxL, train)
            mixed_BxLxHxd = jnp.einsum("BHQK,BKHd->BQHd", weights_BxHxLxL.astype(dtype), v_BxLxHxd)
            moved_BxLxHxd = scheme.value_terms(weights_BxHxLxL, places, tables)
            if moved_BxLxHxd is not None:
                mixed_BxLxHxd = mixed_BxLxHxd + moved_BxLxHxd.astype(dtype)
        mixed_BxLxHxd = constrain(mixed_BxLxHxd, *BY_HEADS)
        if config.mixer == "mixed" and config.convolution.kind != "none":
            convolved_BxLxHxd = Convolution(config, name="convolution")(x_BxLxD, q_BxLxHxd, context.segments_BxL)
            mixed_BxLxHxd = constrain(jnp.concatenate([mixed_BxLxHxd, convolved_BxLxHxd], axis=2), *BY_HEADS)
        outward = ("heads", "head_width", "embed")
        output = Projection(config, (config.width,), outward, inputs=2, dtype=dtype, name="output")
        return constrain(output(mixed_BxLxHxd), "batch", "length", "width")
