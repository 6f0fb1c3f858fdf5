"""Maps of the schemes in which words meet positions: what is left when words are replaced by their mean (our choice).

A term q_i . r_ij is linear in the query, so that its mean over words is the mean query's; how far single words are
from it stands beside the map as a deviation. Shape letters: H heads, L positions, d head width, R rows of a table.
"""

import dataclasses
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from posenc_jax.analysis.projections import Affine, affine, attention_inputs, query_and_key, scale
from posenc_jax.config import ModelConfig
from posenc_jax.positions import Places
from posenc_jax.positions.rope import Rope
from posenc_jax.positions.scheme import PARTS


@dataclasses.dataclass(frozen=True)
class PositionMap:
    """One map of one part of a scheme."""

    name: str
    layer: int | None
    """Counted from 1; None: the same in every layer."""
    map_HxLxL: np.ndarray
    """Float64, query by key, in units of logits: all factors are in it."""
    statement: str
    """What it is, and what in it is our choice."""
    std_HxLxL: np.ndarray | None = None
    """Deviation over words, where the map is a mean over words and one word is in the term."""


@dataclasses.dataclass(frozen=True)
class Moments:
    """Of the queries, or the keys, of many words in one layer."""

    mean_Hxd: np.ndarray
    covariance_Hxdxd: np.ndarray
    plane_norms_Hxp: np.ndarray
    """Mean length of the parts (x_a, x_{a + d/2}) that RoPE turns; empty where d is odd."""

    @classmethod
    def of(cls, x_NxHxd: np.ndarray) -> Self:
        mean_Hxd = x_NxHxd.mean(0)
        centred_NxHxd = x_NxHxd - mean_Hxd
        covariance_Hxdxd = np.einsum("NHd,NHe->Hde", centred_NxHxd, centred_NxHxd) / len(x_NxHxd)
        half = x_NxHxd.shape[-1] // 2
        planes = np.hypot(x_NxHxd[..., :half], x_NxHxd[..., half:]) if x_NxHxd.shape[-1] % 2 == 0 else x_NxHxd[..., :0]
        return cls(mean_Hxd, covariance_Hxdxd, planes.mean(0))

    def meet(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Vectors [R, H, d] -> mean and deviation over the words of their products with them, [H, R] each."""
        mean_HxR = np.einsum("Hd,RHd->HR", self.mean_Hxd, vectors)
        variance_HxR = np.einsum("RHd,Hde,RHe->HR", vectors, self.covariance_Hxdxd, vectors, optimize=True)
        return mean_HxR, np.sqrt(np.maximum(variance_HxR, 0.0))


@dataclasses.dataclass(frozen=True)
class WordStatistics:
    """Moments of queries and keys, unscaled, in each layer; over the words of a text, padding left out."""

    count: int
    queries: tuple[Moments, ...]
    keys: tuple[Moments, ...]

    @classmethod
    def of(cls, model: ModelConfig, params: Any, tokens_BxL: np.ndarray, segments_BxL: np.ndarray) -> Self:
        segments_BxL = np.asarray(segments_BxL)
        is_word_BxL = segments_BxL > 0
        if np.shape(tokens_BxL) != segments_BxL.shape or not is_word_BxL.any():
            raise ValueError(f"tokens {np.shape(tokens_BxL)} and segments {segments_BxL.shape} hold no words")
        queries, keys = [], []
        for layer, x_BxLxD in enumerate(attention_inputs(model, params, tokens_BxL, segments_BxL)):
            for found, project in zip((queries, keys), query_and_key(model, params, layer), strict=True):
                found.append(Moments.of(project(x_BxLxD[is_word_BxL])))
        return cls(int(is_word_BxL.sum()), tuple(queries), tuple(keys))


def shaw_maps(model: ModelConfig, params: Any, length: int, name: str, words: WordStatistics) -> list[PositionMap]:
    """q_i . r_ij / sqrt(terms d) of shaw and ddrp, which share r over heads; in every layer the mean query's."""
    part, shared = PARTS[name], params.get("positions", {}).get(name)
    heads, clip = model.attention_heads, model.positions.clip
    index_LxL = np.clip(_difference(length), -clip, clip) + clip
    maps = []
    for layer in range(model.layers):
        tree = shared if model.positions.shared_over_layers else params["layers"]["attention"]["positions"][name]
        keys = {
            leaf: array if model.positions.shared_over_layers else array[layer] for leaf, array in tree["keys"].items()
        }
        table_Cxd = np.asarray(part.vectors(model).apply({"params": keys}), np.float64)
        table_CxHxd = np.repeat(table_Cxd[:, None], heads, 1)
        mean_HxC, std_HxC = (scale(model) * side for side in words.queries[layer].meet(table_CxHxd))
        statement = f"{name}'s term of queries and relative vectors, for the mean query of {words.count} words (ours)"
        maps.append(PositionMap(name, layer + 1, mean_HxC[:, index_LxL], statement, std_HxC[:, index_LxL]))
    return maps


def deberta_maps(model: ModelConfig, params: Any, length: int, name: str, words: WordStatistics) -> list[PositionMap]:
    """q_i . K(R[e]) and k_j . Q(R[e']) of each layer, for the mean query and the mean key."""
    positions, difference_LxL = model.positions, _difference(length)
    last = 2 * positions.clip - 1
    back_LxL, ahead_LxL = (np.clip(positions.clip + sign * difference_LxL, 0, last) for sign in (-1, 1))
    table_RxD = np.asarray(params["positions"][name]["table"], np.float64)
    maps = []
    for layer in range(model.layers):
        query, key = _deberta_projections(model, params, layer)
        sides = []
        if positions.content_to_position:
            sides.append(("word to position", "query", words.queries, key, back_LxL))
        if positions.position_to_content != "none":
            coded = positions.position_to_content == "as_coded"
            sides.append(("position to word", "key", words.keys, query, back_LxL if coded else ahead_LxL))
        for side, of, moments, project, index_LxL in sides:
            mean_HxR, std_HxR = (scale(model) * x for x in moments[layer].meet(project(table_RxD)))
            statement = f"deberta's term {side}, for the mean {of} of {words.count} words (ours)"
            chosen = (x[:, index_LxL] for x in (mean_HxR, std_HxR))
            mean_HxLxL, std_HxLxL = chosen
            maps.append(PositionMap(f"{name}, {side}", layer + 1, mean_HxLxL, statement, std_HxLxL))
    return maps


def _deberta_projections(model: ModelConfig, params: Any, layer: int) -> tuple[Affine | None, Affine | None]:
    """What relative vectors go through to become queries and keys."""
    if model.positions.projections == "words":
        return query_and_key(model, params, layer)
    own = params["layers"]["attention"]["positions"]["deberta"]
    query, key = (affine(own[side], layer) if side in own else None for side in ("query", "key"))
    return query, key


def rope_maps(model: ModelConfig, params: Any, length: int, name: str, words: WordStatistics) -> list[PositionMap]:
    """Two profiles of each layer that depend on j - i alone.

    The first is the mean of q_i . R(j - i) k_j over all pairs of words, which is that of the mean query and the mean
    key. The second is what a query and a key of mean length in every plane that RoPE turns would have, were they
    aligned at distance 0: it shows which waves a head has, and not where it looks.
    """
    maps = []
    for layer in range(model.layers):
        query, key = words.queries[layer], words.keys[layer]
        zeros_Hxp = np.zeros_like(query.plane_norms_Hxp)
        aligned = (np.concatenate([side.plane_norms_Hxp, zeros_Hxp], -1) for side in (query, key))
        count = words.count
        for called, (q_Hxd, k_Hxd), statement in (
            (
                name,
                (query.mean_Hxd, key.mean_Hxd),
                f"rope: mean over all pairs of {count} words at distance j - i (ours)",
            ),
            (f"{name}, norms alone", tuple(aligned), f"rope: {count} words' mean norms in each plane, aligned (ours)"),
        ):
            maps.append(PositionMap(called, layer + 1, _turned(model, q_Hxd, k_Hxd, length), statement))
    return maps


def _turned(model: ModelConfig, q_Hxd: np.ndarray, k_Hxd: np.ndarray, length: int) -> np.ndarray:
    """One query and one key at every position, turned by the model's own code."""
    same = (jnp.asarray(np.tile(x[None, None], (1, length, 1, 1)), jnp.float32) for x in (q_Hxd * scale(model), k_Hxd))
    places = Places(jnp.arange(length)[None], aligned=True)
    turned = Rope(model, "layer", 1).apply({}, *same, places, None, method="queries_and_keys")
    q_LxHxd, k_LxHxd = (np.asarray(x[0], np.float64) for x in turned)
    return np.einsum("QHd,KHd->HQK", q_LxHxd, k_LxHxd)


def _difference(length: int) -> np.ndarray:
    """Position of the key minus that of the query."""
    return np.arange(length)[None] - np.arange(length)[:, None]
