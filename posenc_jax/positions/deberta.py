"""Disentangled attention: words meet relative positions in both directions (He et al. 2021, DeBERTa)."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.errors import UsageError
from posenc_jax.layers import Projection, weights
from posenc_jax.parallel.mesh import gathered
from posenc_jax.positions.part import Meet, Part
from posenc_jax.positions.places import Places


class Deberta(Part):
    """(q_i . k_j + q_i . K(R[e]) + k_j . Q(R[e'])) / sqrt(3 d), R one table [2K, width] for all layers.

    e = clamp(i - j + K, 0, 2K - 1). The public code takes e' = e; the paper writes e' of j - i: `position_to_content`
    says which, "as_coded" or "as_written". K() and Q() are each layer's own projections, or with
    `projections="words"` those that its words go through. With one of the terms off the scale is 1 / sqrt(2 d).
    (ddrp_mth_and_symmetric.md 1.4; biases in the layer's own projections are our choice.)
    """

    source: ClassVar[str] = "He et al. 2021"
    knobs: ClassVar[tuple[str, ...]] = ("clip", "content_to_position", "position_to_content", "projections")

    @classmethod
    def extra_terms(cls, positions: PositionConfig) -> int:
        return int(positions.content_to_position) + (positions.position_to_content != "none")

    @classmethod
    def is_relative(cls, positions: PositionConfig) -> bool:
        return True

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        if not cls.extra_terms(config.positions):
            raise UsageError("deberta with content_to_position=False and position_to_content='none' adds nothing")

    def setup(self) -> None:
        config = self.config
        if self.place == "encoder":
            init = nn.with_logical_partitioning(weights(config), ("bucket", "embed"))
            self.table = self.param("table", init, (2 * config.positions.clip, config.width))
        elif config.positions.projections == "own":
            heads = (config.attention_heads, config.head_width)
            axes, dtype = ("embed", "heads", "head_width"), jnp.dtype(config.dtype)
            if config.positions.position_to_content != "none":
                self.query = Projection(config, heads, axes, dtype=dtype)
            if config.positions.content_to_position:
                self.key = Projection(config, heads, axes, dtype=dtype)

    def shared_tables(self) -> jax.Array:
        return gathered(self.table, "bucket", "embed")

    def content_terms(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, places: Places, tables: jax.Array, meet: Meet
    ) -> jax.Array:
        positions, terms = self.config.positions, []
        query_RxHxd, key_RxHxd = meet(tables) if positions.projections == "words" else (None, None)
        # Rows of the table for j - i = -K..K, and for i - j = -K..K.
        ahead = np.clip(2 * positions.clip - np.arange(2 * positions.clip + 1), 0, 2 * positions.clip - 1)
        behind = np.clip(np.arange(2 * positions.clip + 1), 0, 2 * positions.clip - 1)
        if positions.content_to_position:
            key_RxHxd = self.key(tables) if key_RxHxd is None else key_RxHxd
            terms.append(places.spread(_meet(q_BxLxHxd, key_RxHxd[ahead])))
        if positions.position_to_content != "none":
            query_RxHxd = self.query(tables) if query_RxHxd is None else query_RxHxd
            # Here the key is the one that asks: spread from its side, where the difference has the other sign.
            rows = behind if positions.position_to_content == "as_coded" else ahead
            terms.append(jnp.swapaxes(places.spread(_meet(k_BxLxHxd, query_RxHxd[rows])), -1, -2) * self.scale)
        return sum(terms[1:], start=terms[0])


def _meet(x_BxLxHxd: jax.Array, table_CxHxd: jax.Array) -> jax.Array:
    exact = jnp.promote_types(x_BxLxHxd.dtype, jnp.float32)
    return jnp.einsum("BLHd,CHd->BHLC", x_BxLxHxd, table_CxHxd, preferred_element_type=exact)
