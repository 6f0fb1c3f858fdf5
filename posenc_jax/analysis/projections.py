"""A layer's queries and keys as float64 matrices, whatever the compatibility, and what they are made from.

Shape letters: B rows, L slots, D width, H heads that attend, d their width, E layers counted with the embedding output.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.config import ModelConfig
from posenc_jax.model.compatibility import meeting_matrix
from posenc_jax.model.encoder import all_states
from posenc_jax.positions import Scheme


class Affine(NamedTuple):
    """x [..., D] -> x kernel + bias [..., H, d]."""

    kernel_DxHxd: np.ndarray
    bias_Hxd: np.ndarray

    def linear(self, x: np.ndarray) -> np.ndarray:
        """Without the bias."""
        return np.tensordot(x, self.kernel_DxHxd, 1)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.linear(x) + self.bias_Hxd


def affine(tree: Any, layer: int | None = None) -> Affine:
    """A projection's parameters, those of one layer (counted from 0) where they are stacked."""
    kernel, bias = (tree[name] if layer is None else tree[name][layer] for name in ("kernel", "bias"))
    return Affine(np.asarray(kernel, np.float64), np.asarray(bias, np.float64))


def query_and_key(model: ModelConfig, params: Any, layer: int) -> tuple[Affine, Affine]:
    """The maps to queries and keys of one layer, counted from 0; the content logit is their product times `scale`.

    Of the symmetric compatibility both are one; pairwise keys are M_h q (ddrp_mth_and_symmetric.md 2.1).
    """
    attention, kind = params["layers"]["attention"], model.compatibility.name
    query = affine(attention["query"], layer)
    if kind == "dot_product":
        return query, affine(attention["key"], layer)
    if kind == "symmetric":
        return query, query
    meeting_Hxdxd = np.asarray(meeting_matrix(model, attention["meeting"]["kernel"][layer]), np.float64)
    key_DxHxd = np.einsum("DHd,Hed->DHe", query.kernel_DxHxd, meeting_Hxdxd)
    return query, Affine(key_DxHxd, np.einsum("Hd,Hed->He", query.bias_Hxd, meeting_Hxdxd))


def scale(model: ModelConfig) -> float:
    """1 / sqrt(terms * d), the factor of every correlation in a logit."""
    return Scheme(model, "layer").scale


def layer_norm(x: np.ndarray, tree: Any, eps: float) -> np.ndarray:
    """LayerNorm over the last axis, in float64."""
    centred = x - x.mean(-1, keepdims=True)
    gain, bias = (np.asarray(tree[name], np.float64) for name in ("scale", "bias"))
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * gain + bias


def attention_inputs(model: ModelConfig, params: Any, *batch: Any, **options: Any) -> np.ndarray:
    """What the attention of each layer reads: float64 [E - 1, B, L, D]. Arguments as of `model.encoder.all_states`."""
    arrays = [None if array is None else jnp.asarray(array, jnp.int32) for array in batch]
    run = jax.jit(lambda params, arrays: all_states(model, params, *arrays, **options)[:-1])
    x_ExBxLxD = np.asarray(run(params, arrays), np.float64)
    if model.norm == "post":
        return x_ExBxLxD
    norm = params["layers"]["attention_norm"]
    each = [{name: leaf[n] for name, leaf in norm.items()} for n in range(model.layers)]
    return np.stack([layer_norm(x, tree, model.norm_eps) for x, tree in zip(x_ExBxLxD, each, strict=True)])
