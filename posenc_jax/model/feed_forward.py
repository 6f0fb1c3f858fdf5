"""The block that works on each word alone."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Projection, gelu


class FeedForward(nn.Module):
    """W_2 gelu(W_1 x), biases in both, no dropout between (tupe.md 1.4)."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BxLxD: jax.Array) -> jax.Array:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        wide = Projection(config, (config.feed_forward_width,), ("embed", "feed_forward"), dtype=dtype, name="inner")
        narrow = Projection(config, (config.width,), ("feed_forward", "embed"), dtype=dtype, name="outer")
        return narrow(gelu(wide(x_BxLxD)))
