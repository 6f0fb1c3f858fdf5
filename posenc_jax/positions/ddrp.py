"""DDRP-style relative vectors: distance and direction in tables of their own (after Zhang et al. 2023).

Of the paper ("Better Pre-Training by Reducing Representation Confusion", Findings of EACL 2023) only this is known to
us: it starts from Shaw's vectors, keeps one table of distances and one of directions, and multiplies the two. All else
is our choice (ddrp_mth_and_symmetric.md 1.2): elementwise product, keys alone, no factor at distance 0, a clip, tables
shared over heads and not over layers, no absolute positions, and how it all starts. Call results "DDRP-style".
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.errors import UsageError
from posenc_jax.layers import weights
from posenc_jax.positions.shaw import Shaw


class DirectedVectors(nn.Module):
    """r = D[0] at difference 0, D[c] * S_forward ahead and D[c] * S_backward behind, c = min(|j - i|, K).

    Float32 [2K + 1, d], for -K..K. S starts at 1 + N(0, init_std^2): were both near 0, the product would start fifty
    times too small, and at 0 neither would learn. S never decays, which would pull it to 0: the optimizer leaves out
    what is named "factor".
    Control arms: `distance` (S is 1), `direction` (one D for all distances but 0), `sum` (D[c] + S, S from 0).
    """

    config: ModelConfig

    @nn.compact
    def __call__(self) -> jax.Array:
        config, form, clip = self.config, self.config.positions.ddrp_form, self.config.positions.clip
        width, axes = config.head_width, ("bucket", "head_width")
        rows = 2 if form == "direction" else clip + 1
        init = nn.with_logical_partitioning(weights(config), axes)
        distance_Cxd = self.param("distance", init, (rows, width))
        far_Kxd = jnp.broadcast_to(distance_Cxd[1:], (clip, width))
        if form == "distance":
            ahead_Kxd = behind_Kxd = far_Kxd
        elif form == "sum":
            forward, backward = self.param("direction", init, (2, width))[:, None]
            ahead_Kxd, behind_Kxd = far_Kxd + forward, far_Kxd + backward
        else:
            near_one = nn.with_logical_partitioning(_near_one(config), axes)
            forward, backward = self.param("factor", near_one, (2, width))[:, None]
            ahead_Kxd, behind_Kxd = far_Kxd * forward, far_Kxd * backward
        return jnp.concatenate([behind_Kxd[::-1], distance_Cxd[:1], ahead_Kxd])


def _near_one(config: ModelConfig) -> nn.initializers.Initializer:
    return lambda key, shape, dtype=jnp.float32: 1 + weights(config)(key, shape, dtype)


class Ddrp(Shaw):
    """Shaw's terms with vectors made of distance and direction."""

    source: ClassVar[str] = "after Zhang et al. 2023; all but the product our choice"
    knobs: ClassVar[tuple[str, ...]] = ("clip", "on_values", "shared_over_layers", "ddrp_form")
    vectors: ClassVar[type[nn.Module]] = DirectedVectors

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        positions = config.positions
        if positions.ddrp_form == "direction" and positions.clip != type(positions)().clip:
            raise UsageError(
                f"model.positions.clip={positions.clip} would change nothing with "
                "model.positions.ddrp_form='direction', where all distances share one vector"
            )
