"""Untied positional correlation: TUPE-A, and with "+t5" TUPE-R (Ke, He, Liu, ICLR 2021)."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from posenc_jax.config import PositionConfig
from posenc_jax.positions.places import Places
from posenc_jax.positions.projected import ProjectedPart


class Tupe(ProjectedPart):
    """(LN(p_i) U_Q) . (LN(p_j) U_K) / sqrt(2 d), computed once and added in every layer (eq. 10, tupe.md 1.2).

    The projections have biases and the positions a LayerNorm, as in the published code. With `untie_cls` the cells
    of [CLS] are replaced by theta_1 (its row, itself included) and theta_2 (its column): the same product of two
    further rows of the table with themselves, so a word at position t reads row t + 1. Without it: TUPE-A tie-cls.
    """

    source: ClassVar[str] = "Ke et al. 2021, eq. 10 and 11, as published in code"
    knobs: ClassVar[tuple[str, ...]] = ("untie_cls",)

    @classmethod
    def extra_terms(cls, positions: PositionConfig) -> int:
        return 1

    @property
    def rows(self) -> int:
        return self.config.positions.max_length + self.config.positions.untie_cls

    def shared_bias(self, places: Places) -> jax.Array:
        q_PxHxd, k_PxHxd = self.projected()
        q_PxHxd, position_BxL = q_PxHxd * self.scale, places.position_BxL
        if not self.config.positions.untie_cls:
            return jnp.einsum("BQHd,BKHd->BHQK", q_PxHxd[position_BxL], k_PxHxd[position_BxL])
        bias_BxHxLxL = jnp.einsum("BQHd,BKHd->BHQK", q_PxHxd[position_BxL + 1], k_PxHxd[position_BxL + 1])
        theta_1_H, theta_2_H = jnp.einsum("PHd,PHd->PH", q_PxHxd[:2], k_PxHxd[:2])
        is_cls_BxL = position_BxL == 0
        bias_BxHxLxL = jnp.where(is_cls_BxL[:, None, None, :], theta_2_H[None, :, None, None], bias_BxHxLxL)
        return jnp.where(is_cls_BxL[:, None, :, None], theta_1_H[None, :, None, None], bias_BxHxLxL)
