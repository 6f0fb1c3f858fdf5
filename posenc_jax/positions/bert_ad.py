"""BERT-A^d: words and positions projected apart, all four correlations kept (Ke, He, Liu, ICLR 2021, section 4.3)."""

from typing import ClassVar

import jax

from posenc_jax.config import PositionConfig
from posenc_jax.positions.places import Places
from posenc_jax.positions.projected import ProjectedPart


class BertAd(ProjectedPart):
    """(x_i W_Q + p_i U_Q) . (x_j W_K + p_j U_K) / sqrt(4 d) in every layer, which is all four terms (tupe.md 1.0).

    p is LayerNormed as in TUPE, U_Q and U_K are shared over the layers, and the input is the words alone: the
    consistent reading of a formula that the paper leaves open there. [CLS] is a word like any other.
    """

    source: ClassVar[str] = "Ke et al. 2021, 4.3; input and sharing our reading"

    @classmethod
    def extra_terms(cls, positions: PositionConfig) -> int:
        return 3

    def shared_tables(self) -> tuple[jax.Array, jax.Array]:
        return self.projected()

    def queries_and_keys(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, places: Places, tables: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        q_PxHxd, k_PxHxd = tables
        q_BxLxHxd = q_BxLxHxd + (self.scale * q_PxHxd[places.position_BxL]).astype(q_BxLxHxd.dtype)
        return q_BxLxHxd, k_BxLxHxd + k_PxHxd[places.position_BxL].astype(k_BxLxHxd.dtype)
