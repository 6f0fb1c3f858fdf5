"""The windows of the convolution heads: what each word's neighbours weigh (ConvBERT, convbert_and_electra.md 1.2)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import softmax

from posenc_jax.analysis.projections import affine, attention_inputs, query_and_key
from posenc_jax.config import ModelConfig


def convolution_windows(
    model: ModelConfig,
    params: Any,
    tokens_BxL: np.ndarray,
    segments_BxL: np.ndarray,
    positions_BxL: np.ndarray | None = None,
) -> np.ndarray:
    """Float64 [E - 1, B, L, H, K]: index 0 is layer 1, slot j of a window is the word (K - 1) / 2 - j before.

    `params` are the encoder's, the arrays those of `model.encoder.Encoder`; H are the heads that convolve. Each window
    sums to 1, and what falls beyond the ends of a text is lost. Of light convolution all words have the same. Windows
    of words at padding mean nothing. Raises `ValueError` for a model without windows: attention alone, or a separable
    convolution, which has filters a channel.
    """
    kind = model.convolution.kind
    if model.mixer != "mixed" or kind in ("none", "separable"):
        raise ValueError(f"model.mixer={model.mixer!r}, model.convolution.kind={kind!r}: there are no windows")
    segments_BxL = np.asarray(segments_BxL)
    tree = params["layers"]["attention"]["convolution"]
    layers = []
    for layer, x_BxLxD in enumerate(attention_inputs(model, params, tokens_BxL, segments_BxL, positions_BxL)):
        if kind == "light":
            window_HxK = softmax(np.asarray(tree["window"][layer], np.float64), axis=-1)
            layers.append(np.broadcast_to(window_HxK, (*segments_BxL.shape, *window_HxK.shape)))
            continue
        asked_BxLxHxd = query_and_key(model, params, layer)[0](x_BxLxD)
        if kind == "span_dynamic":
            asked_BxLxHxd = asked_BxLxHxd * _span_keys(model, tree["key"], layer, x_BxLxD, segments_BxL)
        kernel, bias = (np.asarray(tree["window"][name][layer], np.float64) for name in ("kernel", "bias"))
        layers.append(softmax(np.tensordot(asked_BxLxHxd, kernel, 2) + bias, axis=-1))
    return np.stack(layers)


def _span_keys(model: ModelConfig, tree: Any, layer: int, x_BxLxD: np.ndarray, segments_BxL: np.ndarray) -> np.ndarray:
    """[B, L, H, d] of the words around each word: a depthwise separable convolution."""
    filter_KxD = np.asarray(tree["depthwise"][layer], np.float64)
    filtered_BxLxD = np.zeros_like(x_BxLxD)
    for slot, (here, there) in enumerate(_looks(x_BxLxD.shape[1], len(filter_KxD))):
        seen_BxLxD = x_BxLxD[:, there]
        if model.convolution.mask:
            same_BxL = (segments_BxL[:, here] == segments_BxL[:, there]) & (segments_BxL[:, here] > 0)
            seen_BxLxD = seen_BxLxD * same_BxL[..., None]
        filtered_BxLxD[:, here] += filter_KxD[slot] * seen_BxLxD
    return affine(tree["pointwise"], layer)(filtered_BxLxD)


def _looks(length: int, slots: int) -> Iterator[tuple[slice, slice]]:
    """For each slot of a window, the words that have something there, and what that is."""
    for offset in range(-(slots // 2), slots // 2 + 1):
        first, last = max(0, -offset), max(0, length - max(0, offset))
        yield slice(first, last), slice(first + offset, max(0, last + offset))
