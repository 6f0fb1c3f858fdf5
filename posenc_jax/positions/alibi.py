"""Attention with linear biases, without parameters (Press et al. 2022), in its form for both directions."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.config import PositionConfig
from posenc_jax.positions.part import Part
from posenc_jax.positions.places import Places


def slopes(heads: int) -> np.ndarray:
    """Float64 [heads]: 2^(-8/n), 2^(-16/n), ... for a power of two n; else those of the power below, filled up with
    every other one of the power above, as the paper's code does."""
    power = 2 ** math.floor(math.log2(heads))
    first = 2.0 ** (-8 / power * np.arange(1, power + 1))
    more = 2.0 ** (-4 / power * np.arange(1, 2 * power + 1, 2))
    return np.concatenate([first, more])[:heads]


class Alibi(Part):
    """-slope_h * |j - i|, added unscaled: equal penalties before and behind (the paper is causal; symmetry is our
    choice of its bidirectional forms)."""

    source: ClassVar[str] = "Press et al. 2022; symmetric form our choice"

    @classmethod
    def is_relative(cls, positions: PositionConfig) -> bool:
        return True

    def shared_bias(self, places: Places) -> jax.Array:
        exact = jnp.promote_types(self.config.dtype, jnp.float32)
        slope_H = jnp.asarray(slopes(self.config.attention_heads), exact)
        return -slope_H[None, :, None, None] * jnp.abs(places.difference())[:, None].astype(exact)
