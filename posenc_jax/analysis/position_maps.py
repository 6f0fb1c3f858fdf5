"""What each position scheme does to the logits of each head: matrices of query by key positions.

Some schemes have such a matrix as their parameters (tupe, t5, alibi, bert_ad); of others the term is made of words and
positions, and a word has to be chosen: there the map is a mean over words, and says so.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.analysis.input_correlations import input_parts
from posenc_jax.analysis.projections import query_and_key, scale
from posenc_jax.analysis.word_terms import PositionMap, WordStatistics, deberta_maps, rope_maps, shaw_maps
from posenc_jax.config import ModelConfig
from posenc_jax.errors import UsageError
from posenc_jax.positions import Places, Scheme, check_scheme
from posenc_jax.positions.part import Part
from posenc_jax.positions.scheme import PARTS, part_names

WORDS = 64
"""Of the vocabulary, or of those given: so many stand at every position for the map of positions at the input."""

_WORD_TERMS: dict[str, Callable[..., list[PositionMap]]] = {
    "shaw": shaw_maps,
    "ddrp": shaw_maps,
    "deberta": deberta_maps,
    "rope": rope_maps,
}
"""Parts whose terms hold words."""


def position_maps(
    model: ModelConfig,
    params: Any,
    length: int,
    tokens_BxL: np.ndarray | None = None,
    segments_BxL: np.ndarray | None = None,
) -> list[PositionMap]:
    """The maps of every part of a scheme for positions 0 to `length` - 1, each with a statement of what it is.

    `params` are the encoder's. tupe, t5, alibi, bert_ad, learned, sinusoidal: without words (what a part of your own
    answers to `shared_bias` is found, too). shaw, ddrp, deberta and rope are asked by words: the mean over those of
    `tokens_BxL`, [B, any length], padding 0 in `segments_BxL`. Where [CLS] is untied its map comes twice, with the
    reset and without. Several biases of the logits are also given as their sum.

    Raises `UsageError` for a scheme without a map, one that needs words where there are none, and rows too long for it.
    """
    if length < 1:
        raise UsageError(f"length={length}: a map is of at least one position")
    check_scheme(model, length)
    names, said = part_names(model.positions), model.positions.scheme
    if not names:
        raise UsageError(f"model.positions.scheme={said!r} tells no positions: there is no map of them")
    statistics = None
    if any(name in _WORD_TERMS for name in names):
        if tokens_BxL is None or segments_BxL is None:
            needs = next(name for name in names if name in _WORD_TERMS)
            raise UsageError(f"the positions of {needs!r} act on words: give tokens and segments of some text")
        statistics = WordStatistics.of(model, params, tokens_BxL, segments_BxL)
    maps: list[PositionMap] = []
    at_input = [name for name in names if PARTS[name].embed is not Part.embed]
    for name in names:
        if name in at_input:
            maps += [_at_input(model, params, length, at_input, tokens_BxL, segments_BxL)] * (name == at_input[0])
        elif name in _WORD_TERMS:
            maps += _WORD_TERMS[name](model, params, length, name, statistics)
        elif name == "bert_ad":
            maps.append(_bert_ad(model, params, length))
        elif PARTS[name].shared_bias is not Part.shared_bias:
            maps += _biases(model, params, length, name)
        else:
            raise UsageError(f"no map is known of {name!r}, a part of model.positions.scheme={said!r}")
    return maps + _sum_of_biases(model, params, length)


# ---- biases of the logits -----------------------------------------------------------------------------------------


def _biases(model: ModelConfig, params: Any, length: int, name: str) -> list[PositionMap]:
    """What the model adds, by the part's own code; where [CLS] is untied, beside it what the reset replaces."""
    positions, tree = model.positions, params.get("positions", {}).get(name, {})
    reset = positions.untie_cls and "untie_cls" in PARTS[name].knobs
    what = f"the bias of {name}, added to the logits of every layer as it is"
    if name == "t5" and positions.shared_over_layers is False:
        layers = params["layers"]["attention"]["positions"]["t5"]
        trees = [{"table": layers["table"][n]} for n in range(model.layers)]
        maps = [
            PositionMap(name, n + 1, _answer(model, name, tree, length), "the bias of t5 in this layer, as it is")
            for n, tree in enumerate(trees)
        ]
    else:
        trees, maps = [tree], [PositionMap(name, None, _answer(model, name, tree, length), what)]
    if not reset:
        return maps
    maps = [dataclasses.replace(each, statement=f"{each.statement}; [CLS] untied") for each in maps]
    for each, tree in zip(list(maps), trees, strict=True):
        tied, statement = _without_reset(model, tree, length, name)
        maps.append(PositionMap(f"{name}, no reset", each.layer, tied, statement))
    return maps


def _without_reset(model: ModelConfig, tree: Any, length: int, name: str) -> tuple[np.ndarray, str]:
    if name == "t5":
        tied = dataclasses.replace(model, positions=dataclasses.replace(model.positions, untie_cls=False))
        table = tree["table"][: model.positions.buckets]
        return _answer(tied, name, {"table": table}, length), "t5's bias by distance, before the cells of [CLS] are set"
    q_LxHxd, k_LxHxd = (side[1 : length + 1] for side in _apply(model, name, tree, "projected"))
    statement = (
        "tupe's product of positions before the cells of [CLS] are set; its first row and column, the corner apart, "
        "are never used and were not trained"
    )
    return np.einsum("QHd,KHd->HQK", q_LxHxd, k_LxHxd) * scale(model), statement


def _sum_of_biases(model: ModelConfig, params: Any, length: int) -> list[PositionMap]:
    names = [name for name in part_names(model.positions) if PARTS[name].shared_bias is not Part.shared_bias]
    if model.positions.shared_over_layers is False:
        names = [name for name in names if name != "t5"]
    if len(names) < 2:
        return []
    answer = Scheme(model, "encoder").apply(
        {"params": params.get("positions", {})}, _places(length), method="shared_bias"
    )
    total_HxLxL = np.asarray(answer[0], np.float64)
    return [PositionMap("+".join(names), None, total_HxLxL, "their sum, added to the logits of every layer as it is")]


def _answer(model: ModelConfig, name: str, tree: Any, length: int) -> np.ndarray:
    """[H, L, L] that a part adds to the logits, given its parameters."""
    if name == "t5" and model.positions.shared_over_layers is False:
        part = PARTS[name](model, "layer", 1)
        answer = part.apply({"params": tree}, None, None, _places(length), None, None, method="content_terms")
        return np.asarray(answer[0], np.float64)
    return np.asarray(_apply(model, name, tree, "shared_bias", _places(length))[0], np.float64)


def _apply(model: ModelConfig, name: str, tree: Any, method: str, *args: Any) -> Any:
    part = PARTS[name](model, "encoder", Scheme(model, "encoder").terms)
    return jax.tree.map(np.asarray, part.apply({"params": tree}, *args, method=method))


def _places(length: int) -> Places:
    return Places(jnp.arange(length)[None], aligned=True)


# ---- positions that meet positions --------------------------------------------------------------------------------


def _bert_ad(model: ModelConfig, params: Any, length: int) -> PositionMap:
    tree = params["positions"]["bert_ad"]
    q_LxHxd, k_LxHxd = (np.asarray(side[:length], np.float64) for side in _apply(model, "bert_ad", tree, "projected"))
    statement = (
        "positions meeting positions, one of the four terms, the same in every layer; the two terms in which words "
        "meet positions are not in it"
    )
    return PositionMap("bert_ad", None, np.einsum("QHd,KHd->HQK", q_LxHxd, k_LxHxd) * scale(model), statement)


def _at_input(
    model: ModelConfig,
    params: Any,
    length: int,
    names: list[str],
    tokens: np.ndarray | None,
    segments: np.ndarray | None,
) -> PositionMap:
    """Mean over words that stand at every position: a LayerNorm comes between, and its deviation is also the word's.

    Each word alone has a map of rank d at most; the mean of many may have a higher one, by little.
    """
    if tokens is None or segments is None:
        known, of = np.arange(len(params["words"])), "the vocabulary"
    else:
        known, of = np.unique(np.asarray(tokens)[np.asarray(segments) > 0]), "those given"
    words_N = known[np.unique(np.linspace(0, len(known) - 1, min(WORDS, len(known))).astype(int))]
    query, key = query_and_key(model, params, 0)
    total_HxLxL = 0.0
    for word in words_N:
        p_LxD = input_parts(model, params, np.full((1, length), word)).position_BxLxD[0]
        q_LxHxd, k_LxHxd = query.linear(p_LxD), key.linear(p_LxD)
        total_HxLxL = total_HxLxL + q_LxHxd.swapaxes(0, 1) @ np.moveaxis(k_LxHxd, 0, -1)
    statement = (
        f"positions meeting positions in layer 1, LayerNorm's statistics frozen; the mean over {len(words_N)} words of "
        f"{of} at every position (our choice)"
    )
    return PositionMap("+".join(names), 1, total_HxLxL * scale(model) / len(words_N), statement)
