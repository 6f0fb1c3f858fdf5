"""Relative position vectors that queries meet, and values carry if asked (Shaw et al. 2018)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.layers import weights
from posenc_jax.positions.part import Meet, Part
from posenc_jax.positions.places import Places


class RelativeVectors(nn.Module):
    """w[-K..K], one vector a clipped difference: float32 [2K + 1, d], shared over heads."""

    config: ModelConfig

    @nn.compact
    def __call__(self) -> jax.Array:
        init = nn.with_logical_partitioning(weights(self.config), ("bucket", "head_width"))
        return self.param("table", init, (2 * self.config.positions.clip + 1, self.config.head_width))


class Shaw(Part):
    """q_i . (k_j + a_ij) / sqrt(d), and with `on_values` sum_j weight_ij (v_j + a'_ij); a_ij = w[clip(j - i, -K, K)].

    Each layer has its own vectors unless `shared_over_layers`. Never an L x L x d tensor: queries meet the 2K + 1
    vectors, and the scores are spread over the keys (Shaw et al. 2018, section 3.3 has the same aim).
    """

    source: ClassVar[str] = "Shaw et al. 2018"
    knobs: ClassVar[tuple[str, ...]] = ("clip", "on_values", "shared_over_layers")
    vectors: ClassVar[type[nn.Module]] = RelativeVectors
    """What makes the table [2K + 1, d]; the one thing in which a kind of relative vectors differs from another."""

    @classmethod
    def is_relative(cls, positions: PositionConfig) -> bool:
        return True

    def setup(self) -> None:
        positions = self.config.positions
        if (self.place == "encoder") == bool(positions.shared_over_layers):
            self.keys = self.vectors(self.config)
            if positions.on_values:
                self.values = self.vectors(self.config)

    def _tables(self) -> dict[str, jax.Array]:
        return {"keys": self.keys(), **({"values": self.values()} if self.config.positions.on_values else {})}

    def shared_tables(self) -> dict[str, jax.Array] | None:
        return self._tables() if self.config.positions.shared_over_layers else None

    def content_terms(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, places: Places, tables: Any, meet: Meet
    ) -> jax.Array:
        table_Cxd = (tables or self._tables())["keys"]
        return places.spread(meet_table(q_BxLxHxd, table_Cxd))

    def value_terms(self, weights_BxHxLxL: jax.Array, places: Places, tables: Any) -> jax.Array | None:
        if not self.config.positions.on_values:
            return None
        table_Cxd = (tables or self._tables())["values"]
        weights_BxHxLxC = places.gather(weights_BxHxLxL, self.config.positions.clip)
        return jnp.einsum("BHLC,Cd->BLHd", weights_BxHxLxC, table_Cxd)


def meet_table(x_BxLxHxd: jax.Array, table_Cxd: jax.Array) -> jax.Array:
    """Product of every vector with every row of a table, at least float32: [B, H, L, C]."""
    exact = jnp.promote_types(x_BxLxHxd.dtype, jnp.float32)
    return jnp.einsum("BLHd,Cd->BHLC", x_BxLxHxd.astype(exact), table_Cxd.astype(exact))
