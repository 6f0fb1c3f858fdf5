"""The questions a layer may ask about position, answered by default with "nothing to add"."""

from typing import Any, ClassVar, Literal

import jax
from flax import linen as nn

from posenc_jax.config import ModelConfig


class Part(nn.Module):
    """One way of telling an encoder where its words are; a scheme is a sum of parts.

    A part stands in one of two places. At the encoder it is asked once a forward pass (`embed`, `shared_bias`,
    `shared_tables`); at a layer, once in each (`rotate`, `content_terms`), with parameters of that layer's own.
    `position_BxL` is [1, L] when all rows have the same positions, so that a bias is [1, H, L, L]: one for the batch.
    """

    config: ModelConfig
    place: Literal["encoder", "layer"]
    terms: int
    """Correlations summed in a logit, over the whole scheme: the scale is 1 / sqrt(terms * d)."""

    extra_terms: ClassVar[int] = 0
    """Correlations this part adds to the content's own."""
    is_relative: ClassVar[bool] = False
    """Only differences of positions matter, and [CLS] is a word like any other."""
    has_table: ClassVar[bool] = False
    """One row a position: no position above `config.positions.max_length` has a meaning."""

    def embed(self, x_BxLxD: jax.Array, position_BxL: jax.Array) -> jax.Array:
        """Word vectors before the first LayerNorm -> the same with the position in them."""
        return x_BxLxD

    def shared_bias(self, position_BxL: jax.Array) -> jax.Array | None:
        """Float32 [B or 1, H, L, L], query by key, added to the logits of every layer; the scale is already in it."""
        return None

    def shared_tables(self) -> Any:
        """What the encoder's part hands to `content_terms` of the same part in every layer."""
        return None

    def rotate(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, position_BxL: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Queries and keys with the position turned into them."""
        return q_BxLxHxd, k_BxLxHxd

    def content_terms(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, position_BxL: jax.Array, tables: Any
    ) -> jax.Array | None:
        """Unscaled float32 [B, H, L, L] where words meet positions, added to the content's own term."""
        return None
