"""The encoder: words in, one vector a word out. It asks the position scheme and knows none by name."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.checks import config_from_dict
from posenc_jax.config import Config, ModelConfig, config_to_dict
from posenc_jax.errors import UsageError
from posenc_jax.layers import Dropout, Norm, Projection, lookup, weights
from posenc_jax.model.attention import WEIGHTS, Attention, Context
from posenc_jax.model.dispatch import can_be_written_out
from posenc_jax.model.feed_forward import FeedForward
from posenc_jax.model.similarity import HEADS, WORDS, word_cosines
from posenc_jax.parallel.mesh import constrain, gathered
from posenc_jax.positions import Places, Scheme, check_scheme

ACTIVATION = ("batch", "length", "width")
STATES = "states"
"""Collection in which the encoder leaves the vectors after each layer, when a caller makes it mutable."""


class Layer(nn.Module):
    """Mixer and feed-forward, each with a residual sum and a LayerNorm after it ("post") or before ("pre")."""

    config: ModelConfig
    train: bool

    @nn.compact
    def __call__(self, x_BxLxD: jax.Array, context: Context) -> tuple[jax.Array, None]:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        attention, feed_forward = Attention(config, name="attention"), FeedForward(config, name="feed_forward")
        attention_norm, feed_forward_norm = (
            Norm(config, dtype, name=name) for name in ("attention_norm", "feed_forward_norm")
        )
        drop = Dropout(config.dropout, name="dropout")
        if config.norm == "post":
            x_BxLxD = attention_norm(x_BxLxD + drop(attention(x_BxLxD, context, self.train), self.train))
            x_BxLxD = feed_forward_norm(x_BxLxD + drop(feed_forward(x_BxLxD), self.train))
        else:
            x_BxLxD = x_BxLxD + drop(attention(attention_norm(x_BxLxD), context, self.train), self.train)
            x_BxLxD = x_BxLxD + drop(feed_forward(feed_forward_norm(x_BxLxD)), self.train)
        x_BxLxD = constrain(x_BxLxD, *ACTIVATION)
        if not self.is_initializing():
            self.sow(STATES, "layer", x_BxLxD)
        return x_BxLxD, None


class Encoder(nn.Module):
    """Embeddings and `config.layers` layers; `config.vocab_size` must be set."""

    config: ModelConfig

    def setup(self) -> None:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        check_encoder(config, 1)
        width = config.embedding_width or config.width
        init = nn.with_logical_partitioning(_words_but_no_padding(config), ("vocab", "embed"))
        self.words = self.param("words", init, (config.vocab_size, width))
        if config.token_types:
            init = nn.with_logical_partitioning(weights(config), ("type", "embed"))
            self.types = self.param("types", init, (config.token_types, width))
        self.positions = Scheme(config, "encoder")
        self.norm = Norm(config, dtype)
        if width != config.width:
            self.widen = Projection(config, (config.width,), ("embed_in", "embed"), dtype=dtype, init=_widening(config))
        self.dropout = Dropout(config.dropout)
        if config.norm == "pre":
            self.final_norm = Norm(config, dtype)

    @nn.compact
    def __call__(
        self,
        tokens_BxL: jax.Array,
        segments_BxL: jax.Array,
        positions_BxL: jax.Array | None = None,
        types_BxL: jax.Array | None = None,
        *,
        train: bool = False,
        contiguous: bool = False,
    ) -> jax.Array:
        """Token ids -> [B, L, D] in `config.dtype`.

        `segments_BxL`: 0 is padding; words meet only words of their own segment. `positions_BxL`: None counts the
        slots from 0. `types_BxL`: which text of a pair a word is of, where the model has token types; None is the
        first. `contiguous` promises that positions grow by one within a segment, as packed rows do: then a relative
        term is one for all rows. Values at padding mean nothing. Ids beyond a table are not seen: JAX takes the
        nearest row. Raises `UsageError` as `check_encoder` does.
        """
        config, length = self.config, tokens_BxL.shape[-1]
        check_scheme(config, length)
        position_BxL = jnp.arange(length)[None] if positions_BxL is None else positions_BxL
        # Where convolutions leak, the values at padding matter, and the promise says nothing of positions there.
        leaks = config.mixer == "mixed" and not config.convolution.mask
        places = Places(position_BxL, aligned=positions_BxL is None or (contiguous and not leaks))

        x_BxLxE = constrain(lookup(gathered(self.words, "vocab", "embed"), tokens_BxL), *ACTIVATION)
        if config.token_types:
            types = gathered(self.types, "type", "embed")
            x_BxLxE = x_BxLxE + types[jnp.zeros((1, 1), jnp.int32) if types_BxL is None else types_BxL]
        x_BxLxE = self.norm(self.positions.embed(x_BxLxE, places))
        x_BxLxD = self.dropout(x_BxLxE, train)
        if x_BxLxE.shape[-1] != config.width:
            x_BxLxD = constrain(self.widen(x_BxLxD), *ACTIVATION)

        if not self.is_initializing():
            self.sow(STATES, "input", x_BxLxD)
        context = Context(segments_BxL, places, self.positions.shared_bias(places), self.positions.shared_tables())
        x_BxLxD, _ = _stack(config)(config, train, name="layers")(x_BxLxD, context)
        x_BxLxD = self.final_norm(x_BxLxD) if config.norm == "pre" else x_BxLxD
        if self.is_mutable_collection(WORDS) and not self.is_initializing():
            for name, total in word_cosines(x_BxLxD, segments_BxL).items():
                self.sow(WORDS, name, total)
        return x_BxLxD


def all_states(config: ModelConfig, params: Any, *batch: jax.Array | None, **options: Any) -> jax.Array:
    """Arguments as of `Encoder` -> [layers + 1, B, L, D]: the input of the first layer, and what each layer puts out.

    With LayerNorm before the blocks ("pre") these are the sums that run through the layers; the norm at the very end
    is in `Encoder`'s own output alone.
    """
    _, states = Encoder(config).apply({"params": params}, *batch, **options, mutable=STATES)
    kept = states[STATES]
    return jnp.concatenate([kept["input"][0][None], kept["layers"]["layer"][0]])


def check_encoder(config: ModelConfig, length: int) -> None:
    """Raises `UsageError` where the model cannot be built, or not for rows of `length` slots: settings that do not fit
    each other, a scheme that does not fit the model, no vocabulary, rows beyond a table, float64 that JAX would cut."""
    config_from_dict(config_to_dict(Config(model=config)))  # a config made by hand was never checked
    if config.vocab_size is None:
        raise UsageError("model.vocab_size is not set; take that of the tokenizer")
    if jnp.dtype(config.dtype) != jax.dtypes.canonicalize_dtype(config.dtype):
        raise UsageError(f"model.dtype={config.dtype!r} needs JAX_ENABLE_X64=1 in the environment")
    check_scheme(config, length)


def _stack(config: ModelConfig) -> type[nn.Module]:
    """`config.layers` layers whose parameters lie stacked on a leading axis, in a loop or written out."""
    layer = nn.remat(Layer, prevent_cse=False) if config.remat else Layer
    return nn.scan(
        layer,
        variable_axes={"params": 0, STATES: 0, HEADS: 0, WEIGHTS: 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=nn.broadcast,
        length=config.layers,
        unroll=1 if config.scan or not can_be_written_out() else config.layers,
        metadata_params={nn.PARTITION_NAME: "layers"},
    )


def _words_but_no_padding(config: ModelConfig) -> nn.initializers.Initializer:
    """As all weights start, zeros for id 0, the padding (tupe.md 1.5); ELECTRA and ConvBERT leave that row drawn."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
        table = weights(config)(key, shape, dtype)
        return table if config.init == "truncated_normal" else table.at[0].set(0.0)

    return init


def _widening(config: ModelConfig) -> nn.initializers.Initializer | None:
    """ELECTRA leaves this one projection at its framework's own start (convbert_and_electra.md 1.8)."""
    return nn.initializers.glorot_uniform() if config.init == "truncated_normal" else None
