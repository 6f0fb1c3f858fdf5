"""The block that works on each word alone."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Projection, gelu, weights


class FeedForward(nn.Module):
    """W_2 gelu(W_1 x), biases in both, no dropout between (tupe.md 1.4); with groups, block-diagonal W_1 and W_2."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BxLxD: jax.Array) -> jax.Array:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        if config.feed_forward_groups == 1:
            wide = Projection(
                config, (config.feed_forward_width,), ("embed", "feed_forward"), dtype=dtype, name="inner"
            )
            narrow = Projection(config, (config.width,), ("feed_forward", "embed"), dtype=dtype, name="outer")
        else:
            wide = GroupedProjection(config, config.feed_forward_width, ("embed", "feed_forward"), name="inner")
            narrow = GroupedProjection(config, config.width, ("feed_forward", "embed"), name="outer")
        return narrow(gelu(wide(x_BxLxD)))


class GroupedProjection(nn.Module):
    """Channels in G contiguous blocks, block g through kernel [G, in / G, out / G][g], results side by side, and one
    bias (convbert_and_electra.md 1.4)."""

    config: ModelConfig
    features: int
    axes: tuple[str, str]

    @nn.compact
    def __call__(self, x_BxLxI: jax.Array) -> jax.Array:
        groups, dtype = self.config.feed_forward_groups, jnp.dtype(self.config.dtype)
        shape = (groups, x_BxLxI.shape[-1] // groups, self.features // groups)
        kernel = self.param("kernel", nn.with_logical_partitioning(weights(self.config), ("groups", *self.axes)), shape)
        bias = self.param("bias", nn.with_logical_partitioning(nn.initializers.zeros, self.axes[1:]), (self.features,))
        x_BxLxGxI = x_BxLxI.astype(dtype).reshape(*x_BxLxI.shape[:-1], *shape[:2])
        y_BxLxGxO = jnp.einsum("BLGI,GIO->BLGO", x_BxLxGxI, kernel.astype(dtype))
        return y_BxLxGxO.reshape(*x_BxLxI.shape[:-1], self.features) + bias[None, None].astype(dtype)
