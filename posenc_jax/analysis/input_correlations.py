"""The four correlations of words and positions in the first layer of an encoder that adds them at the input.

(w + p) W_Q . (w + p) W_K is four terms (Ke et al. 2021, eq. 6 and figure 2). BERT has a LayerNorm between the sum and
W_Q, so that the equation is not exact; with the mean and deviation of the sum frozen it is (tupe.md 5):

    LN(w + p) = g (w - mean w) / s + g (p - mean p) / s + b,    s the deviation of w + p

What holds neither words nor positions (b, the biases of projections, a token type) stands apart as "constant", and so
does every product with it. A second LayerNorm ("pre") and a widening of the embeddings are split likewise.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from posenc_jax.analysis.projections import query_and_key, scale
from posenc_jax.config import ModelConfig
from posenc_jax.errors import UsageError
from posenc_jax.positions import Places, Scheme
from posenc_jax.positions.part import Part
from posenc_jax.positions.scheme import PARTS, part_names

FOUR = ("word_word", "word_position", "position_word", "position_position")
"""Query before key."""
CONSTANT = "constant"


class Parts(NamedTuple):
    """What the first layer's attention reads, as a sum of three: float64 [B, L, D] each."""

    word_BxLxD: np.ndarray
    position_BxLxD: np.ndarray
    constant_BxLxD: np.ndarray


def input_correlations(
    model: ModelConfig,
    params: Any,
    tokens_BxL: np.ndarray,
    positions_BxL: np.ndarray | None = None,
    types_BxL: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Maps float64 [B, H, L, L], query by key, by the names in `FOUR` and `CONSTANT`; their sum is the content logit.

    The scale of the logits is in all of them. Terms that a scheme adds to the logits beside (t5, tupe, ...) are not
    here but in `position_maps`. Raises `UsageError` for a scheme that adds no position to the words at the input, or
    that puts positions into queries and keys, too (rope, bert_ad).
    """
    _check(model)
    parts = input_parts(model, params, tokens_BxL, positions_BxL, types_BxL)
    query, key = query_and_key(model, params, 0)
    q_w, q_p, q_c = (query.linear(part) * scale(model) for part in parts)
    k_w, k_p, k_c = (key.linear(part) for part in parts)
    q_c, k_c = q_c + query.bias_Hxd * scale(model), k_c + key.bias_Hxd
    pairs = ((q_w, k_w), (q_w, k_p), (q_p, k_w), (q_p, k_p))
    maps = {name: _meet(*pair) for name, pair in zip(FOUR, pairs, strict=True)}
    maps[CONSTANT] = _meet(q_c, k_w + k_p + k_c) + _meet(q_w + q_p, k_c)
    return maps


def input_parts(
    model: ModelConfig,
    params: Any,
    tokens_BxL: np.ndarray,
    positions_BxL: np.ndarray | None = None,
    types_BxL: np.ndarray | None = None,
) -> Parts:
    """The split of the first attention's input; arrays as of `model.encoder.Encoder`."""
    length = np.shape(tokens_BxL)[1]
    position_BxL = jnp.arange(length)[None] if positions_BxL is None else jnp.asarray(positions_BxL, jnp.int32)
    table_VxE = np.asarray(params["words"])
    word_BxLxE = table_VxE[np.asarray(tokens_BxL)].astype(np.float64)
    nothing_BxLxE = jnp.zeros((*position_BxL.shape, table_VxE.shape[1]))
    at_input = Scheme(model, "encoder").apply(
        {"params": params.get("positions", {})}, nothing_BxLxE, Places(position_BxL, aligned=False), method="embed"
    )
    parts = [word_BxLxE, np.broadcast_to(np.asarray(at_input, np.float64), word_BxLxE.shape), np.zeros_like(word_BxLxE)]
    if model.token_types:
        types_BxL = np.zeros((1, 1), int) if types_BxL is None else np.asarray(types_BxL)
        parts[2] = parts[2] + np.asarray(params["types"], np.float64)[types_BxL]
    parts = _frozen_norm(parts, params["norm"], model.norm_eps)
    if model.embedding_width not in (None, model.width):
        widen = {name: np.asarray(leaf, np.float64) for name, leaf in params["widen"].items()}
        parts = [part @ widen["kernel"] for part in parts]
        parts[2] = parts[2] + widen["bias"]
    if model.norm == "pre":
        norm = {name: leaf[0] for name, leaf in params["layers"]["attention_norm"].items()}
        parts = _frozen_norm(parts, norm, model.norm_eps)
    return Parts(*parts)


def mean_over_sentences(map_BxHxLxL: np.ndarray, segments_BxL: np.ndarray) -> np.ndarray:
    """[H, L, L]: the mean over the rows in which both slots hold words of one segment; NaN where none do.

    Whatever differs from sentence to sentence shrinks here by itself: look at single sentences, too.
    """
    met_Bx1xLxL = _met(segments_BxL)[:, None]
    count_1xLxL = met_Bx1xLxL.sum(0)
    total_HxLxL = np.where(met_Bx1xLxL, map_BxHxLxL, 0.0).sum(0)
    return np.where(count_1xLxL > 0, total_HxLxL / np.maximum(count_1xLxL, 1), np.nan)


class Uniformity(NamedTuple):
    """How much of a map there is to see, a number a head, the mean over the rows of a batch."""

    std_H: np.ndarray
    """Deviation over pairs of words of one segment, in units of logits; a uniform map has 0."""
    within_rows_H: np.ndarray
    """The same once each query's mean is taken away, which is all that a softmax sees of it."""
    share_H: np.ndarray
    """Its `within_rows_H` squared, as a share of those of the four; NaN for the constant and where all are 0."""


def uniformity(maps: dict[str, np.ndarray], segments_BxL: np.ndarray) -> dict[str, Uniformity]:
    """For each map of `input_correlations` (our choice; the paper judges by eye). Of a mean over sentences
    [H, L, L] give `map[None]`, and ones [1, L] as the segments."""
    met_BxLxL = _met(segments_BxL)
    rows_B = met_BxLxL.any((1, 2))
    if not rows_B.any():
        raise ValueError(f"segments {np.shape(segments_BxL)} without a word")
    met_Bx1xLxL = met_BxLxL[rows_B][:, None]
    found = {}
    for name, map_BxHxLxL in maps.items():
        map_BxHxLxL = np.asarray(map_BxHxLxL, np.float64)[rows_B]
        keys_Bx1xLx1 = np.maximum(met_Bx1xLxL.sum(-1, keepdims=True), 1)
        row_BxHxLx1 = np.where(met_Bx1xLxL, map_BxHxLxL, 0.0).sum(-1, keepdims=True) / keys_Bx1xLx1
        centred = _std(map_BxHxLxL, met_Bx1xLxL), _std(map_BxHxLxL - row_BxHxLx1, met_Bx1xLxL)
        found[name] = Uniformity(*centred, np.full(map_BxHxLxL.shape[1], np.nan))
    total_H = sum(found[name].within_rows_H ** 2 for name in FOUR if name in found)
    safe_H = np.where(total_H > 0, total_H, np.nan)
    return {
        name: entry._replace(share_H=entry.within_rows_H**2 / safe_H) if name in FOUR else entry
        for name, entry in found.items()
    }


def _check(model: ModelConfig) -> None:
    parts, said = {name: PARTS[name] for name in part_names(model.positions)}, model.positions.scheme
    if not any(part.embed is not Part.embed for part in parts.values()):
        raise UsageError(
            f"model.positions.scheme={said!r} adds no position to the words at the input, so that there are no four "
            "correlations to part; analysis.position_maps shows what it does with positions"
        )
    turned = [name for name, part in parts.items() if part.queries_and_keys is not Part.queries_and_keys]
    if turned:
        raise UsageError(
            f"model.positions.scheme={said!r}: {turned[0]!r} changes queries and keys by their position, and then the "
            "first layer's logits are not four correlations; analysis.position_maps shows what it does"
        )


def _frozen_norm(parts: list[np.ndarray], tree: Any, eps: float) -> list[np.ndarray]:
    """Each part through LayerNorm with the statistics of their sum; the norm's bias goes to the last."""
    total = sum(parts)
    deviation = np.sqrt(total.var(-1, keepdims=True) + eps)
    gain, bias = (np.asarray(tree[name], np.float64) for name in ("scale", "bias"))
    parts = [(part - part.mean(-1, keepdims=True)) / deviation * gain for part in parts]
    return [*parts[:-1], parts[-1] + bias]


def _meet(q_BxLxHxd: np.ndarray, k_BxLxHxd: np.ndarray) -> np.ndarray:
    return q_BxLxHxd.swapaxes(1, 2) @ k_BxLxHxd.swapaxes(1, 2).swapaxes(2, 3)


def _met(segments_BxL: np.ndarray) -> np.ndarray:
    segments_BxL = np.asarray(segments_BxL)
    return (segments_BxL[:, :, None] == segments_BxL[:, None]) & (segments_BxL > 0)[:, None]


def _std(map_BxHxLxL: np.ndarray, met_Bx1xLxL: np.ndarray) -> np.ndarray:
    count = met_Bx1xLxL.sum((2, 3), keepdims=True)
    mean = np.where(met_Bx1xLxL, map_BxHxLxL, 0.0).sum((2, 3), keepdims=True) / count
    square = np.where(met_Bx1xLxL, (map_BxHxLxL - mean) ** 2, 0.0).sum((2, 3), keepdims=True) / count
    return np.sqrt(square)[..., 0, 0].mean(0)
