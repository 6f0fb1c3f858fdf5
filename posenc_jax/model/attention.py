"""Self-attention of many heads: content, position terms, one mask, softmax in float32."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Dropout, Projection
from posenc_jax.positions import Scheme

MASKED = -1e30
"""Logit of a pair that may not meet. Finite: a row with no pair left is uniform, not NaN."""


class Attention(nn.Module):
    """softmax(q . k / sqrt(terms * d) + position terms) v, projected back to the width (tupe.md 1.0, 1.4)."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        x_BxLxD: jax.Array,
        mask_BxLxL: jax.Array,
        position_BxL: jax.Array,
        bias_BxHxLxL: jax.Array | None,
        tables: Any,
        train: bool,
    ) -> jax.Array:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        heads = (config.heads, config.width // config.heads)
        inward = ("embed", "heads", "head_width")
        q_BxLxHxd = Projection(config, heads, inward, dtype=dtype, name="query")(x_BxLxD)
        k_BxLxHxd = Projection(config, heads, inward, dtype=dtype, name="key")(x_BxLxD)
        v_BxLxHxd = Projection(config, heads, inward, dtype=dtype, name="value")(x_BxLxD)

        scheme = Scheme(config, "layer", name="positions")
        scale = (scheme.terms * heads[1]) ** -0.5
        q_BxLxHxd, k_BxLxHxd = scheme.rotate(q_BxLxHxd * scale, k_BxLxHxd, position_BxL)
        logits_BxHxLxL = jnp.einsum("BQHd,BKHd->BHQK", q_BxLxHxd, k_BxLxHxd, preferred_element_type=jnp.float32)
        terms_BxHxLxL = scheme.content_terms(q_BxLxHxd, k_BxLxHxd, position_BxL, tables)
        for term_BxHxLxL in (terms_BxHxLxL, bias_BxHxLxL):
            logits_BxHxLxL = logits_BxHxLxL if term_BxHxLxL is None else logits_BxHxLxL + term_BxHxLxL

        logits_BxHxLxL = jnp.where(mask_BxLxL[:, None], logits_BxHxLxL, MASKED)
        weights_BxHxLxL = Dropout(config.attention_dropout)(jax.nn.softmax(logits_BxHxLxL), train)
        mixed_BxLxHxd = jnp.einsum("BHQK,BKHd->BQHd", weights_BxHxLxL.astype(dtype), v_BxLxHxd)
        outward = ("heads", "head_width", "embed")
        return Projection(config, (config.width,), outward, inputs=2, dtype=dtype, name="output")(mixed_BxLxHxd)
