"""How local, how sharp and how alike the heads of each layer are, and how alike the words' vectors.

Every measure leaves padding and pairs of words of different segments out, and stands beside what uniform attention over
the same words would have. Shape letters: E layers (attention has one fewer than states), B rows, H heads, L slots.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import xlogy

from posenc_jax.model.similarity import HEAD_EPSILON, count_texts, head_cosines, word_cosines

FORMS = ("plain", "squared", "centred")
"""Of a mean cosine over different pairs, as in `model.similarity`."""


class Measure(NamedTuple):
    value_ExH: np.ndarray
    """Float64, index 0 is layer 1; the mean over all queries that are words."""
    uniform: float
    """The same of attention that is uniform over the words of a query's segment."""


class Concentration(NamedTuple):
    share_ExH: np.ndarray
    """Attention on keys nearer than `width`, between 0 and 1: float64, index 0 is layer 1."""
    ratio_ExH: np.ndarray
    """Attention on those divided by attention on the others; inf where there are no others."""
    uniform: float
    """The share of uniform attention; a segment of n words alone has (7 n - 12) / n^2 at width 4, n >= 3."""


def diagonal_concentration(weights_ExBxHxLxL: np.ndarray, segments_BxL: np.ndarray, width: int = 4) -> Concentration:
    """Attention near the diagonal: on keys with |i - j| < `width`, of all words' queries together.

    The name is ConvBERT's (Jiang et al. 2020). Its formula was not to be had: from memory it is the ratio, with
    |i - j| < 4 or <= 4 (convbert_and_electra.md 4, positional_artefacts.md 4). The share, which is bounded and of which
    the uniform value is known, is our definition. Of heads averaged first give `weights.mean(2, keepdims=True)`.
    """
    near_LxL = np.abs(_difference(weights_ExBxHxLxL)) < width
    near, far = (_mean(weights_ExBxHxLxL, segments_BxL, mask_LxL) for mask_LxL in (near_LxL, ~near_LxL))
    safe_ExH = np.where(far.value_ExH > 0, far.value_ExH, 1.0)
    ratio_ExH = np.where(far.value_ExH > 0, near.value_ExH / safe_ExH, np.inf)
    return Concentration(near.value_ExH, ratio_ExH, near.uniform)


def attention_distance(weights_ExBxHxLxL: np.ndarray, segments_BxL: np.ndarray) -> Measure:
    """Mean |i - j|, in slots, weighted by attention."""
    return _mean(weights_ExBxHxLxL, segments_BxL, np.abs(_difference(weights_ExBxHxLxL)).astype(np.float64))


def attention_by_distance(weights_ExBxHxLxL: np.ndarray, segments_BxL: np.ndarray, reach: int) -> list[Measure]:
    """Attention on the keys at each distance j - i from -`reach` to `reach`, mean over all words' queries: a share of
    their attention, so that the measures of all distances add up to 1. Near an end of a text some have no key there."""
    difference_LxL = _difference(weights_ExBxHxLxL)
    return [_mean(weights_ExBxHxLxL, segments_BxL, difference_LxL == distance) for distance in range(-reach, reach + 1)]


def attention_entropy(weights_ExBxHxLxL: np.ndarray, segments_BxL: np.ndarray) -> Measure:
    """Mean entropy of the rows, in nats."""
    met_BxLxL = _met(weights_ExBxHxLxL, segments_BxL)
    query_BxL = met_BxLxL.any(-1)
    layers = []
    for weights_BxHxLxL in weights_ExBxHxLxL:
        exact = np.asarray(weights_BxHxLxL, np.float64)
        rows_BxHxL = -xlogy(exact, exact).sum(-1)
        layers.append(np.einsum("BHL,BL->H", rows_BxHxL, query_BxL) / query_BxL.sum())
    uniform = np.log(met_BxLxL.sum(-1)[query_BxL]).mean()
    return Measure(np.stack(layers), float(uniform))


def token_similarity(states_ExBxLxD: np.ndarray, segments_BxL: np.ndarray) -> dict[str, np.ndarray]:
    """Mean cosine between the vectors of different words of a text, mean over texts: [E] for each of `FORMS`.

    The measure that TCD penalises (after Zhang et al. 2023; the exact form is our choice): `model.similarity`. Texts of
    one word have no pair and are left out.
    """
    segments_BxL = jnp.asarray(segments_BxL)
    texts = float(count_texts(segments_BxL))
    if not texts:
        raise ValueError(f"segments {segments_BxL.shape} without a text of two words")
    cosines = jax.jit(word_cosines)
    sums = [jax.device_get(cosines(jnp.asarray(states_BxLxD), segments_BxL)) for states_BxLxD in states_ExBxLxD]
    return {form: np.array([each[form] for each in sums], np.float64) / texts for form in FORMS}


def head_similarity(
    weights_ExBxHxLxL: np.ndarray, segments_BxL: np.ndarray, *, by_rows: bool = True
) -> dict[str, np.ndarray]:
    """Mean cosine between the attention of different heads of a layer: [E - 1] for each of `FORMS`.

    By rows: of the rows of each query, mean over all words' queries, the measure that HCD penalises (after Zhang et al.
    2023). Else: of whole maps, one cosine a pair of heads and a row of the batch. Which of them the paper means is not
    known; both are our choice. Centred: less 1 / n, what uniform attention gives each of n words; of uniform heads that
    leaves nothing, and the cosine is 0.
    """
    if np.shape(weights_ExBxHxLxL)[2] < 2:
        raise ValueError(f"weights {np.shape(weights_ExBxHxLxL)} have one head, and so no pair of heads")
    met_BxLxL = _met(weights_ExBxHxLxL, segments_BxL)
    if not by_rows:
        return _of_whole_maps(weights_ExBxHxLxL, met_BxLxL)
    queries = met_BxLxL.any(-1).sum()
    cosines, segments_BxL = jax.jit(head_cosines), jnp.asarray(segments_BxL)
    sums = [jax.device_get(cosines(jnp.asarray(w), jnp.asarray(met_BxLxL), segments_BxL)) for w in weights_ExBxHxLxL]
    return {form: np.array([each[form] for each in sums], np.float64) / queries for form in FORMS}


def _of_whole_maps(weights_ExBxHxLxL: np.ndarray, met_BxLxL: np.ndarray) -> dict[str, np.ndarray]:
    rows = np.flatnonzero(met_BxLxL.any((1, 2)))
    met_BxLxL = met_BxLxL[rows]
    uniform_Bx1xLxL = (met_BxLxL / np.maximum(met_BxLxL.sum(-1, keepdims=True), 1))[:, None]
    heads = np.shape(weights_ExBxHxLxL)[2]
    different_HxH = ~np.eye(heads, dtype=bool)
    found: dict[str, list[float]] = {form: [] for form in FORMS}
    for weights_BxHxLxL in weights_ExBxHxLxL:
        exact_BxHxLxL = np.where(met_BxLxL[:, None], np.asarray(weights_BxHxLxL, np.float64)[rows], 0.0)
        plain_BxHxH, centred_BxHxH = (_cosines(x) for x in (exact_BxHxLxL, exact_BxHxLxL - uniform_Bx1xLxL))
        for form, cosine_BxHxH in zip(FORMS, (plain_BxHxH, plain_BxHxH**2, centred_BxHxH), strict=True):
            found[form].append(cosine_BxHxH[:, different_HxH].mean())
    return {form: np.array(values) for form, values in found.items()}


def _cosines(maps_BxHxLxL: np.ndarray) -> np.ndarray:
    flat_BxHxP = maps_BxHxLxL.reshape(*maps_BxHxLxL.shape[:2], -1)
    unit_BxHxP = flat_BxHxP / np.sqrt((flat_BxHxP**2).sum(-1, keepdims=True) + HEAD_EPSILON)
    return unit_BxHxP @ unit_BxHxP.swapaxes(1, 2)


def _mean(weights_ExBxHxLxL: np.ndarray, segments_BxL: np.ndarray, value_LxL: np.ndarray) -> Measure:
    """Mean over the words' queries of the values under their attention."""
    met_BxLxL = _met(weights_ExBxHxLxL, segments_BxL)
    value_BxLxL = met_BxLxL * value_LxL
    queries = met_BxLxL.any(-1).sum()
    layers = [
        np.einsum("BHQK,BQK->H", np.asarray(weights_BxHxLxL, np.float64), value_BxLxL, optimize=True) / queries
        for weights_BxHxLxL in weights_ExBxHxLxL
    ]
    keys_BxLx1 = np.maximum(met_BxLxL.sum(-1, keepdims=True), 1)
    return Measure(np.stack(layers), float((value_BxLxL / keys_BxLx1).sum() / queries))


def _met(weights_ExBxHxLxL: np.ndarray, segments_BxL: np.ndarray) -> np.ndarray:
    """Bool [B, L, L]: words of one segment. Raises `ValueError` for shapes that do not fit, or no word at all."""
    shape, segments_BxL = np.shape(weights_ExBxHxLxL), np.asarray(segments_BxL)
    batch, length = segments_BxL.shape if segments_BxL.ndim == 2 else (-1, -1)
    if len(shape) != 5 or (shape[1], *shape[3:]) != (batch, length, length):
        raise ValueError(f"weights {shape} are not [E - 1, B, H, L, L] for segments {segments_BxL.shape}")
    if not segments_BxL.any():
        raise ValueError(f"segments {segments_BxL.shape} without a word")
    return (segments_BxL[:, :, None] == segments_BxL[:, None]) & (segments_BxL > 0)[:, None]


def _difference(weights_ExBxHxLxL: np.ndarray) -> np.ndarray:
    length = np.shape(weights_ExBxHxLxL)[-1]
    return np.arange(length)[None] - np.arange(length)[:, None]
