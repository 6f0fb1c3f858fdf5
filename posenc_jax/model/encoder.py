"""The encoder: words in, one vector a word out. It asks the position scheme and knows none by name."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Dropout, Norm
from posenc_jax.model.attention import Attention
from posenc_jax.model.feed_forward import FeedForward
from posenc_jax.positions import Scheme, check_scheme


class Layer(nn.Module):
    """Attention and feed-forward, each with a residual sum and a LayerNorm after it ("post") or before ("pre")."""

    config: ModelConfig
    train: bool

    @nn.compact
    def __call__(
        self,
        x_BxLxD: jax.Array,
        mask_BxLxL: jax.Array,
        position_BxL: jax.Array,
        bias_BxHxLxL: jax.Array | None,
        tables: Any,
    ) -> tuple[jax.Array, None]:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        attention, feed_forward = Attention(config, name="attention"), FeedForward(config, name="feed_forward")
        attention_norm, feed_forward_norm = (
            Norm(config, dtype, name=name) for name in ("attention_norm", "feed_forward_norm")
        )
        drop = Dropout(config.dropout, name="dropout")
        context = (mask_BxLxL, position_BxL, bias_BxHxLxL, tables, self.train)
        if config.norm == "post":
            x_BxLxD = attention_norm(x_BxLxD + drop(attention(x_BxLxD, *context), self.train))
            x_BxLxD = feed_forward_norm(x_BxLxD + drop(feed_forward(x_BxLxD), self.train))
        else:
            x_BxLxD = x_BxLxD + drop(attention(attention_norm(x_BxLxD), *context), self.train)
            x_BxLxD = x_BxLxD + drop(feed_forward(feed_forward_norm(x_BxLxD)), self.train)
        return x_BxLxD, None


class Encoder(nn.Module):
    """Embeddings and `config.layers` layers; `config.vocab_size` must be set."""

    config: ModelConfig

    def setup(self) -> None:
        config = self.config
        init = nn.with_logical_partitioning(_words_but_no_padding(config.init_std), ("vocab", "embed"))
        self.words = self.param("words", init, (config.vocab_size, config.width))
        self.positions = Scheme(config, "encoder")
        self.norm = Norm(config, jnp.dtype(config.dtype))
        self.dropout = Dropout(config.dropout)
        if config.norm == "pre":
            self.final_norm = Norm(config, jnp.dtype(config.dtype))

    @nn.compact
    def __call__(
        self,
        tokens_BxL: jax.Array,
        segments_BxL: jax.Array,
        positions_BxL: jax.Array | None = None,
        *,
        train: bool = False,
        contiguous: bool = False,
    ) -> jax.Array:
        """Token ids -> [B, L, D] in `config.dtype`.

        `segments_BxL`: 0 is padding; words meet only words of their own segment. `positions_BxL`: None counts the
        slots from 0. `contiguous` promises that positions grow by one within a segment, as packed rows do: then a
        relative scheme takes the slots for positions, and one bias serves all rows. Values at padding mean nothing.
        Raises `UsageError` when L is beyond the scheme's limit.
        """
        config = self.config
        length = tokens_BxL.shape[-1]
        check_scheme(config.positions, length)
        slots_1xL = jnp.arange(length)[None]
        position_BxL = slots_1xL if positions_BxL is None else positions_BxL

        x_BxLxD = self.positions.embed(self.words[tokens_BxL], position_BxL)
        x_BxLxD = self.dropout(self.norm(x_BxLxD), train)
        x_BxLxD = jnp.where(segments_BxL[..., None] > 0, x_BxLxD, 0)  # as published: zeros where nothing stands

        mask_BxLxL = (segments_BxL[:, :, None] == segments_BxL[:, None, :]) & (segments_BxL > 0)[:, None, :]
        relative = contiguous and self.positions.is_relative()
        bias_BxHxLxL = self.positions.shared_bias(slots_1xL if relative else position_BxL)
        layers = _stack(config)(config, train, name="layers")
        x_BxLxD, _ = layers(x_BxLxD, mask_BxLxL, position_BxL, bias_BxHxLxL, self.positions.shared_tables())
        return self.final_norm(x_BxLxD) if config.norm == "pre" else x_BxLxD


def _stack(config: ModelConfig) -> type[nn.Module]:
    """`config.layers` layers whose parameters lie stacked on a leading axis, rolled or not."""
    layer = nn.remat(Layer, prevent_cse=False) if config.remat else Layer
    return nn.scan(
        layer,
        variable_axes={"params": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=nn.broadcast,
        length=config.layers,
        unroll=1 if config.scan else config.layers,
        metadata_params={nn.PARTITION_NAME: "layers"},
    )


def _words_but_no_padding(std: float) -> nn.initializers.Initializer:
    """N(0, std), zeros for id 0, the padding (tupe.md 1.5)."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.normal(key, shape, dtype).at[0].set(0.0) * std

    return init
