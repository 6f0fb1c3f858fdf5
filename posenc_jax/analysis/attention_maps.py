"""The attention weights of every layer and head for a batch."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.config import ModelConfig
from posenc_jax.model.attention import WEIGHTS
from posenc_jax.model.encoder import Encoder


def attention_maps(
    model: ModelConfig,
    params: Any,
    tokens_BxL: np.ndarray,
    segments_BxL: np.ndarray,
    positions_BxL: np.ndarray | None = None,
    types_BxL: np.ndarray | None = None,
) -> np.ndarray:
    """Softmax rows of every layer, query by key, without dropout: float32 [E - 1, B, H, L, L]; index 0 is layer 1.

    `params` are the encoder's; the arrays are those of `model.encoder.Encoder`. H are the heads that attend: of a mixed
    layer not those that convolve. A row of a query that is padding means nothing. It takes 4 (E - 1) B H L^2 bytes:
    38 MB for a row of 256 and twelve layers of twelve heads.
    """
    batch = (tokens_BxL, segments_BxL, positions_BxL, types_BxL)
    arrays = [None if array is None else jnp.asarray(array, jnp.int32) for array in batch]
    return np.asarray(_weights(model, params, *arrays), np.float32)


@functools.partial(jax.jit, static_argnums=0)
def _weights(model: ModelConfig, params: Any, *arrays: jax.Array | None) -> jax.Array:
    _, kept = Encoder(model).apply({"params": params}, *arrays, mutable=WEIGHTS)
    return kept[WEIGHTS]["layers"]["attention"]["weights"][0]
