"""The block that works on each word alone."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Projection, gelu, weights
from posenc_jax.parallel.mesh import constrain, gathered


class FeedForward(nn.Module):
    """W_2 gelu(W_1 x), biases in both, no dropout between (tupe.md 1.4); with groups, block-diagonal W_1 and W_2."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BxLxD: jax.Array) -> jax.Array:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        inward, outward = ("embed", "feed_forward"), ("feed_forward", "embed")
        if config.feed_forward_groups == 1:
            wide = Projection(config, (config.feed_forward_width,), inward, dtype=dtype, name="inner")
            narrow = Projection(config, (config.width,), outward, dtype=dtype, name="outer")
            inner = constrain(gelu(wide(x_BxLxD)), "batch", "length", "feed_forward")
        else:
            groups = config.feed_forward_groups
            wide = GroupedProjection(config, config.feed_forward_width, inward, name="inner")
            narrow = GroupedProjection(config, config.width, outward, name="outer")
            x_BxLxGxI = x_BxLxD.reshape(*x_BxLxD.shape[:-1], groups, -1)
            # The groups stay apart between the two: joined, "tensor" would have to cut them another way.
            inner = constrain(gelu(wide(x_BxLxGxI)), "batch", "length", "groups", "feed_forward")
        return narrow(inner).reshape(x_BxLxD.shape)


class GroupedProjection(nn.Module):
    """Channels in G contiguous blocks, block g through kernel [G, in / G, out / G][g], results side by side, and one
    bias (convbert_and_electra.md 1.4)."""

    config: ModelConfig
    features: int
    axes: tuple[str, str]

    @nn.compact
    def __call__(self, x_BxLxGxI: jax.Array) -> jax.Array:
        """-> [B, L, G, features / G]."""
        groups, dtype = self.config.feed_forward_groups, jnp.dtype(self.config.dtype)
        shape, axes = (groups, x_BxLxGxI.shape[-1], self.features // groups), ("groups", *self.axes)
        kernel = self.param("kernel", nn.with_logical_partitioning(weights(self.config), axes), shape)
        bias = self.param("bias", nn.with_logical_partitioning(nn.initializers.zeros, axes[2:]), (self.features,))
        kernel, bias = gathered(kernel.astype(dtype), *axes), gathered(bias.astype(dtype), *axes[2:])
        y_BxLxGxO = jnp.einsum("BLGI,GIO->BLGO", x_BxLxGxI.astype(dtype), kernel)
        return y_BxLxGxO + bias.reshape(1, 1, *shape[::2])
