"""The questions a layer may ask about position, answered by default with "nothing to add"."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import jax
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.positions.places import Places

Meet = Callable[[jax.Array], tuple[jax.Array, jax.Array]]
"""A layer's own map from vectors [..., width] to queries and keys [..., heads, head width]."""


class Part(nn.Module):
    """One way of telling an encoder where its words are; a scheme is a sum of parts.

    A part stands in one of two places. At the encoder it is asked once a forward pass (`embed`, `shared_bias`,
    `shared_tables`); at a layer, once in each (`queries_and_keys`, `content_terms`, `value_terms`), with parameters of
    that layer's own. H are the heads that attend (`config.attention_heads`), d their width.
    """

    config: ModelConfig
    place: Literal["encoder", "layer"]
    terms: int
    """Correlations summed in a logit, over the whole scheme."""

    source: ClassVar[str] = ""
    """Where the definition stands."""
    knobs: ClassVar[tuple[str, ...]] = ()
    """Fields of `PositionConfig` that this part reads, beside `max_length`."""
    has_table: ClassVar[bool] = False
    """One row a position: no position above `config.positions.max_length` has a meaning."""

    @classmethod
    def extra_terms(cls, positions: PositionConfig) -> int:
        """Correlations this part adds to the content's own."""
        return 0

    @classmethod
    def is_relative(cls, positions: PositionConfig) -> bool:
        """Whether only differences of positions matter."""
        return False

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """Raises `UsageError` where the rest of the model leaves the part without a meaning."""

    @property
    def scale(self) -> float:
        """1 / sqrt(terms * d), the factor of every correlation."""
        return (self.terms * self.config.head_width) ** -0.5

    def embed(self, x_BxLxE: jax.Array, places: Places) -> jax.Array:
        """Word vectors before the first LayerNorm -> the same with the position in them."""
        return x_BxLxE

    def shared_bias(self, places: Places) -> jax.Array | None:
        """Float32 [B or 1, H, L, L], query by key, added to the logits of every layer; the scale is already in it."""
        return None

    def shared_tables(self) -> Any:
        """What the encoder's part hands to the same part in every layer."""
        return None

    def queries_and_keys(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, places: Places, tables: Any
    ) -> tuple[jax.Array, jax.Array]:
        """Queries, already scaled, and keys -> the same with the position in them."""
        return q_BxLxHxd, k_BxLxHxd

    def content_terms(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, places: Places, tables: Any, meet: Meet
    ) -> jax.Array | None:
        """Float32 [B, H, L, L] where words meet positions, added to the logits.

        Of the words' own queries and keys the queries are already scaled; a term of keys alone takes `self.scale`.
        """
        return None

    def value_terms(self, weights_BxHxLxL: jax.Array, places: Places, tables: Any) -> jax.Array | None:
        """Attention weights -> float32 [B, L, H, d], added to the sum of the values."""
        return None
