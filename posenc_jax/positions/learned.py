"""Learned absolute positions, added to the words at the input: BERT-A."""

from typing import ClassVar

import jax
from flax import linen as nn

from posenc_jax.positions.part import Part


class Learned(Part):
    """x + P[position], P of max_length rows, N(0, init_std) at the start (BERT; tupe.md 1.4)."""

    has_table: ClassVar[bool] = True

    def setup(self) -> None:
        if self.place == "encoder":
            init = nn.with_logical_partitioning(nn.initializers.normal(self.config.init_std), ("position", "embed"))
            self.table = self.param("table", init, (self.config.positions.max_length, self.config.width))

    def embed(self, x_BxLxD: jax.Array, position_BxL: jax.Array) -> jax.Array:
        return x_BxLxD + self.table[position_BxL].astype(x_BxLxD.dtype)
