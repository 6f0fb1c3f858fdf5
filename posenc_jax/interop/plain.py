"""What Hugging Face has no name for, folded into what it has: the same function of the words, exactly."""

import dataclasses
from typing import Any

import numpy as np

from posenc_jax.config import CompatibilityConfig, ModelConfig
from posenc_jax.model.compatibility import meeting_matrix

Params = dict[str, Any]


def is_plain(model: ModelConfig) -> bool:
    """Whether a Hugging Face class has a place for every parameter, the family's own apart."""
    return model.compatibility.name == "dot_product" and model.token_types > 0


def to_plain(model: ModelConfig, params: Params, keep_offset: bool) -> tuple[ModelConfig, Params]:
    """The model as queries and keys of their own, with a table of token types, places from 0 unless `keep_offset`.

    q_i M_h q_j = q_i . k_j for keys of weights W_Q M_h^T and bias M_h b_Q (ddrp_mth_and_symmetric.md 2.1); the
    products are taken in float64. A model without token types gets one row of zeros. `params` is left as it is.
    """
    encoder = dict(params["encoder"])
    layers = dict(encoder["layers"])
    layers["attention"] = _with_keys(model, layers["attention"])
    encoder["layers"] = layers
    changes: dict[str, Any] = {"compatibility": CompatibilityConfig()}
    if not model.token_types:
        encoder["types"] = np.zeros((1, encoder["words"].shape[1]), np.float32)
        changes["token_types"] = 1
    if model.positions.offset and not keep_offset:
        table = encoder["positions"]["learned"]["table"][model.positions.offset :]
        encoder["positions"] = {"learned": {"table": table}}
        changes["positions"] = dataclasses.replace(model.positions, offset=0)
    return dataclasses.replace(model, **changes), {**params, "encoder": encoder}


def _with_keys(model: ModelConfig, attention: Params) -> Params:
    if model.compatibility.name == "dot_product":
        return attention
    attention = dict(attention)
    if model.compatibility.name == "symmetric":
        return {**attention, "key": attention["query"]}
    meeting = attention.pop("meeting")["kernel"]
    matrix_NxHxdxd = np.stack([np.asarray(meeting_matrix(model, kernel), np.float64) for kernel in meeting])
    query = {name: np.asarray(value, np.float64) for name, value in attention["query"].items()}
    key = {
        "kernel": np.einsum("NDHd,NHed->NDHe", query["kernel"], matrix_NxHxdxd),
        "bias": np.einsum("NHd,NHed->NHe", query["bias"], matrix_NxHxdxd),
    }
    return {**attention, "key": {name: value.astype(np.float32) for name, value in key.items()}}
