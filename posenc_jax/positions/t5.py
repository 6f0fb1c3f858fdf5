"""T5's bucketed relative bias: BERT-R with a learned input position, the relative half of TUPE-R with `untie_cls`."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from posenc_jax.positions.part import Part


def bucket_of_distance(reach: int, buckets: int, max_distance: int) -> np.ndarray:
    """Bucket of every difference key - query from -reach to reach: int32 [2 * reach + 1] (T5, bidirectional).

    Half of the buckets look back (and at the word itself), half ahead; in each the first half holds one distance
    a bucket, the second grows with the logarithm up to `max_distance`. Computed on the host in float64: on a device
    the logarithm may round 2 down to 1.9999 just where a bucket begins.
    """
    half = buckets // 2
    exact = half // 2
    difference = np.arange(-reach, reach + 1)
    distance = np.abs(difference)
    growth = np.log(np.maximum(distance, exact) / exact) / np.log(max_distance / exact) * (half - exact)
    logarithmic = np.minimum(exact + np.floor(growth + 1e-9).astype(np.int64), half - 1)
    bucket = np.where(distance < exact, distance, logarithmic)
    return (bucket + np.where(difference > 0, half, 0)).astype(np.int32)


class T5(Part):
    """b_h[bucket(j - i)], added unscaled, one table for all layers (tupe.md 1.3).

    With `untie_cls` and `relative_reset="own_entry"` the cells of [CLS] read entries of their own, as the published
    TUPE code does: its row the bucket `buckets / 2`, which no difference falls into, its column one further row.
    With "theta_alone" they are zero, as the paper writes it.
    """

    @property
    def is_relative(self) -> bool:  # an untied [CLS] is found by its position
        return not self.config.positions.untie_cls

    def setup(self) -> None:
        if self.place == "encoder":
            positions = self.config.positions
            rows = positions.buckets + (positions.untie_cls and positions.relative_reset == "own_entry")
            init = nn.with_logical_partitioning(nn.initializers.normal(self.config.init_std), ("bucket", "heads"))
            self.table = self.param("table", init, (rows, self.config.heads))

    def shared_bias(self, position_BxL: jax.Array) -> jax.Array:
        positions = self.config.positions
        reach = max(position_BxL.shape[-1], positions.max_length) - 1
        buckets = jnp.asarray(bucket_of_distance(reach, positions.buckets, positions.max_distance))
        difference_BxLxL = position_BxL[:, None, :] - position_BxL[:, :, None]
        bucket_BxLxL = buckets[difference_BxLxL + reach]
        from_cls_BxLx1 = (position_BxL == 0)[:, :, None]
        to_cls_Bx1xL = (position_BxL == 0)[:, None, :]
        if positions.untie_cls and positions.relative_reset == "own_entry":
            bucket_BxLxL = jnp.where(to_cls_Bx1xL, positions.buckets, bucket_BxLxL)
            bucket_BxLxL = jnp.where(from_cls_BxLx1, positions.buckets // 2, bucket_BxLxL)
        bias_BxHxLxL = jnp.moveaxis(self.table[bucket_BxLxL], -1, 1)
        if positions.untie_cls and positions.relative_reset == "theta_alone":
            bias_BxHxLxL = jnp.where((from_cls_BxLx1 | to_cls_Bx1xL)[:, None], 0.0, bias_BxHxLxL)
        return bias_BxHxLxL
