"""Shapes of the parameters a model has here, nothing computed."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.model.encoder import Encoder
from posenc_jax.model.heads import MlmHead, RtdHead


def abstract_params(model: ModelConfig, groups: Iterable[str]) -> dict[str, Any]:
    """The subtrees `groups` of an imported model: "encoder", "head" (MLM), "rtd_head", "pooler", "next_sentence".

    The last two are linear maps that nothing here computes with; they are kept for the way back.
    """
    width, embedding = model.width, model.embedding_width or model.width
    words_1x8 = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    hidden_1x8xD = jax.ShapeDtypeStruct((1, 8, width), jnp.float32)
    table_VxE = jax.ShapeDtypeStruct((model.vocab_size, embedding), jnp.float32)
    inits = {
        "encoder": lambda: _init(Encoder(model), words_1x8, words_1x8),
        "head": lambda: _init(MlmHead(model), hidden_1x8xD, table_VxE),
        "rtd_head": lambda: _init(RtdHead(model), hidden_1x8xD),
        "pooler": lambda: _linear(width, width),
        "next_sentence": lambda: _linear(width, 2),
    }
    return {group: inits[group]() for group in groups}


def _init(module: nn.Module, *args: jax.ShapeDtypeStruct) -> Any:
    return nn.unbox(jax.eval_shape(module.init, jax.random.key(0), *args))["params"]


def _linear(inputs: int, outputs: int) -> dict[str, jax.ShapeDtypeStruct]:
    return {
        "kernel": jax.ShapeDtypeStruct((inputs, outputs), jnp.float32),
        "bias": jax.ShapeDtypeStruct((outputs,), jnp.float32),
    }
