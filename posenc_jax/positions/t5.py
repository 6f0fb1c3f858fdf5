"""T5's bucketed relative bias: BERT-R with a learned input position, the relative half of TUPE-R with `untie_cls`."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.errors import UsageError
from posenc_jax.layers import weights
from posenc_jax.positions.part import Meet, Part
from posenc_jax.positions.places import Places


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
    """b_h[bucket(j - i)], added unscaled; one table for all layers unless `shared_over_layers` is False (tupe.md 1.3).

    With `untie_cls` and `relative_reset="own_entry"` the cells of [CLS] read entries of their own, as the published
    TUPE code does: its row the bucket `buckets / 2`, which no difference falls into, its column one further row.
    With "theta_alone" they are zero, as the paper writes it.
    """

    source: ClassVar[str] = "Raffel et al. 2020; reset of [CLS] Ke et al. 2021"
    knobs: ClassVar[tuple[str, ...]] = ("buckets", "max_distance", "untie_cls", "relative_reset", "shared_over_layers")

    @classmethod
    def is_relative(cls, positions: PositionConfig) -> bool:
        return not positions.untie_cls  # an untied [CLS] is found by its position

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        positions = config.positions
        if positions.relative_reset != "own_entry" and not positions.untie_cls:
            raise UsageError(
                f"model.positions.relative_reset={positions.relative_reset!r} would change nothing without "
                "model.positions.untie_cls=True"
            )

    def setup(self) -> None:
        positions = self.config.positions
        if (self.place == "encoder") == (positions.shared_over_layers is not False):
            rows = positions.buckets + (positions.untie_cls and positions.relative_reset == "own_entry")
            init = nn.with_logical_partitioning(weights(self.config), ("bucket", "heads"))
            self.table = self.param("table", init, (rows, self.config.attention_heads))

    def shared_bias(self, places: Places) -> jax.Array | None:
        return None if self.config.positions.shared_over_layers is False else self._bias(places)

    def content_terms(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, places: Places, tables: None, meet: Meet
    ) -> jax.Array | None:
        return self._bias(places) if self.config.positions.shared_over_layers is False else None

    def _bias(self, places: Places) -> jax.Array:
        positions, reach = self.config.positions, self.config.positions.max_distance
        buckets = jnp.asarray(bucket_of_distance(reach, positions.buckets, reach))
        bucket_BxLxL = buckets[jnp.clip(places.difference(), -reach, reach) + reach]
        from_cls_BxLx1 = (places.position_BxL == 0)[:, :, None]
        to_cls_Bx1xL = (places.position_BxL == 0)[:, None, :]
        if positions.untie_cls and positions.relative_reset == "own_entry":
            bucket_BxLxL = jnp.where(to_cls_Bx1xL, positions.buckets, bucket_BxLxL)
            bucket_BxLxL = jnp.where(from_cls_BxLx1, positions.buckets // 2, bucket_BxLxL)
        bias_BxHxLxL = jnp.moveaxis(self.table[bucket_BxLxL], -1, 1)
        if positions.untie_cls and positions.relative_reset == "theta_alone":
            bias_BxHxLxL = jnp.where((from_cls_BxLx1 | to_cls_Bx1xL)[:, None], 0.0, bias_BxHxLxL)
        return bias_BxHxLxL
