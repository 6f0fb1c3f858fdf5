"""Rotary positions: queries and keys are turned by their position (Su et al. 2021)."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.errors import UsageError
from posenc_jax.positions.part import Part
from posenc_jax.positions.places import Places


class Rope(Part):
    """Axes a and a + d/2 of each query and key are turned by position * base^(-2a/d); logits see differences alone.

    The paper turns neighbouring axes 2a and 2a + 1: the same but for the order of the columns of W_Q and W_K. Where
    the key is made of the query (symmetric, pairwise), it is turned after that (our choice).
    """

    source: ClassVar[str] = "Su et al. 2021, RoFormer eq. 34"
    knobs: ClassVar[tuple[str, ...]] = ("rope_base",)

    @classmethod
    def is_relative(cls, positions: PositionConfig) -> bool:
        return True

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        if config.head_width % 2:
            raise UsageError(
                f"rope turns pairs of axes, and model.width={config.width} / model.heads={config.heads} leaves heads "
                f"of {config.head_width}; take an even width of heads"
            )

    def queries_and_keys(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, places: Places, tables: None
    ) -> tuple[jax.Array, jax.Array]:
        half = q_BxLxHxd.shape[-1] // 2
        exact = jnp.promote_types(q_BxLxHxd.dtype, jnp.float32)  # a bfloat16 position is wrong from 257 on
        frequency = self.config.positions.rope_base ** (-jnp.arange(half, dtype=exact) / half)
        angle_BxLx1xd = (places.position_BxL[..., None].astype(exact) * frequency[None, None])[:, :, None]
        cos, sin = jnp.cos(angle_BxLx1xd), jnp.sin(angle_BxLx1xd)

        def turn(x_BxLxHxd: jax.Array) -> jax.Array:
            a, b = jnp.split(x_BxLxHxd.astype(exact), 2, axis=-1)
            return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x_BxLxHxd.dtype)

        return turn(q_BxLxHxd), turn(k_BxLxHxd)
