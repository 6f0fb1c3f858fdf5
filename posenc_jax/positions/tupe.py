"""Untied positional correlation: TUPE-A, and with "+t5" TUPE-R (Ke, He, Liu, ICLR 2021)."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.layers import Norm, Projection
from posenc_jax.positions.part import Part


class Tupe(Part):
    """(LN(p_i) U_Q) . (LN(p_j) U_K) / sqrt(2 d), computed once and added in every layer (eq. 10, tupe.md 1.2).

    The projections have biases and the positions a LayerNorm, as in the published code. With `untie_cls` the cells
    of [CLS] are replaced by theta_1 (its row, itself included) and theta_2 (its column): the same product of two
    further rows of the table with themselves, so a word at position t reads row t + 1. Without it: TUPE-A tie-cls.
    """

    extra_terms: ClassVar[int] = 1
    has_table: ClassVar[bool] = True

    def setup(self) -> None:
        if self.place == "encoder":
            config = self.config
            rows = config.positions.max_length + config.positions.untie_cls
            init = nn.with_logical_partitioning(nn.initializers.normal(config.init_std), ("position", "embed"))
            self.table = self.param("table", init, (rows, config.width))
            self.norm = Norm(config)
            heads = (config.heads, config.width // config.heads)
            self.query = Projection(config, heads, ("embed", "heads", "head_width"), dtype=jnp.float32)
            self.key = Projection(config, heads, ("embed", "heads", "head_width"), dtype=jnp.float32)

    def shared_bias(self, position_BxL: jax.Array) -> jax.Array:
        p_PxD = self.norm(self.table)
        head_width = self.config.width // self.config.heads
        q_PxHxd = self.query(p_PxD) * (self.terms * head_width) ** -0.5
        k_PxHxd = self.key(p_PxD)
        if not self.config.positions.untie_cls:
            return jnp.einsum("BQHd,BKHd->BHQK", q_PxHxd[position_BxL], k_PxHxd[position_BxL])
        bias_BxHxLxL = jnp.einsum("BQHd,BKHd->BHQK", q_PxHxd[position_BxL + 1], k_PxHxd[position_BxL + 1])
        theta_1_H, theta_2_H = jnp.einsum("PHd,PHd->PH", q_PxHxd[:2], k_PxHxd[:2])
        is_cls_BxL = position_BxL == 0
        bias_BxHxLxL = jnp.where(is_cls_BxL[:, None, None, :], theta_2_H[None, :, None, None], bias_BxHxLxL)
        return jnp.where(is_cls_BxL[:, None, :, None], theta_1_H[None, :, None, None], bias_BxHxLxL)
