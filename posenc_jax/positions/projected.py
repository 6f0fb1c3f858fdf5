"""A table of absolute positions with projections of its own: what TUPE and BERT-A^d have in common."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.layers import Norm, Projection, weights
from posenc_jax.parallel.mesh import gathered
from posenc_jax.positions.part import Part


class ProjectedPart(Part):
    """Holds P, a LayerNorm, U_Q and U_K, biases in both, once for all layers (tupe.md 1.1, 1.2)."""

    has_table: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        return self.config.positions.max_length

    def setup(self) -> None:
        if self.place == "encoder":
            config = self.config
            exact = jnp.promote_types(config.dtype, jnp.float32)
            init = nn.with_logical_partitioning(weights(config), ("position", "embed"))
            self.table = self.param("table", init, (self.rows, config.width))
            self.norm = Norm(config, exact)
            heads, axes = (config.attention_heads, config.head_width), ("embed", "heads", "head_width")
            self.query = Projection(config, heads, axes, dtype=exact)
            self.key = Projection(config, heads, axes, dtype=exact)

    def projected(self) -> tuple[jax.Array, jax.Array]:
        """LN(P) U_Q + u_Q and LN(P) U_K + u_K, float32 [rows, H, d] each, unscaled."""
        p_PxD = self.norm(gathered(self.table, "position", "embed"))
        return self.query(p_PxD), self.key(p_PxD)
