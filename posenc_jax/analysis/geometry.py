"""How a layer's vectors lie in space: cosines between words, within words, within sentences, and what makes them.

Arrays in, arrays out. Vectors are [E, N, D]: E layers (0 the embedding output), N vectors, D width. Pairs and the
occurrences of a word are places along N (`analysis.sampling` draws them), so that every layer, and a model raw and
clipped, is measured on the same ones. Sums and cosines are float64, a layer at a time. The cosine with a vector of
zeros is 0. Sources: positional_artefacts.md 1.4 to 1.8 (Luo et al. 2021, Ethayarajh 2019, Timkey & van Schijndel 2021,
Mu & Viswanath 2018).
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np

from posenc_jax.analysis.checks import check_choice

Ranking = Literal["signed", "absolute"]
Metric = Literal["cos", "l2"]
CHUNK = 8192
"""Pairs whose products are held at a time: 50 MB at width 768."""


class Estimate(NamedTuple):
    """A mean over samples in each layer."""

    mean_E: np.ndarray
    error_E: np.ndarray
    """Standard error of the mean: standard deviation / sqrt(count), NaN of a single sample."""
    count: int


def anisotropy(vectors_ExNxD: np.ndarray, pairs_Px2: np.ndarray) -> Estimate:
    """Mean cosine of random pairs: 0 where directions are spread evenly, 1 where all vectors point one way.

    Luo et al. draw 1,000 pairs of words of different sentences (`sample_pairs`); the standard error is ours.
    """
    cosines_ExP = pair_cosines(vectors_ExNxD, pairs_Px2)
    pairs = cosines_ExP.shape[1]
    deviation_E = cosines_ExP.std(1, ddof=1) if pairs > 1 else np.full(len(cosines_ExP), np.nan)
    return Estimate(cosines_ExP.mean(1), deviation_E / np.sqrt(pairs), pairs)


def pair_cosines(vectors_ExNxD: np.ndarray, pairs_Px2: np.ndarray) -> np.ndarray:
    """Float64 [E, P]: the cosine of each pair in each layer."""
    _check(vectors_ExNxD, pairs_Px2)
    return np.stack(
        [
            np.concatenate([(u_PxD * v_PxD).sum(1) for u_PxD, v_PxD in _unit_pairs(layer_NxD, pairs_Px2)])
            for layer_NxD in vectors_ExNxD
        ]
    )


def self_similarity(vectors_ExNxD: np.ndarray, occurrences: Mapping[str, np.ndarray]) -> np.ndarray:
    """[E, O]: the mean cosine between different occurrences of a word, in the order of `occurrences`.

    The mean over all n (n - 1) / 2 pairs, exactly: with unit vectors u_i it is (|sum u_i|^2 - sum |u_i|^2) / (n^2 - n).
    Luo et al. print half of it, but plot values that only the mean can have (positional_artefacts.md 1.5). Raises
    `ValueError` for a word with fewer than two occurrences.
    """

    def measure(unit_OxD: np.ndarray) -> float:
        count = len(unit_OxD)
        if count < 2:
            raise ValueError(f"a word with {count} occurrence has no self-similarity; leave it out")
        return ((unit_OxD.sum(0) ** 2).sum() - (unit_OxD**2).sum()) / (count * (count - 1))

    return _of_words(vectors_ExNxD, occurrences, lambda layer_NxD, index_O: measure(_unit(layer_NxD[index_O])))


def mev(vectors_ExNxD: np.ndarray, occurrences: Mapping[str, np.ndarray], centred: bool = True) -> np.ndarray:
    """[E, O], maximum explainable variance: the share of the first principal component in a word's occurrences.

    sigma_1^2 / sum_i sigma_i^2 of the matrix of its vectors (Ethayarajh 2019). With `centred` their mean is taken off
    first, which makes it a share of variance; without, a share of the sum of squares, near 1 for any vectors that lie
    far from 0. His code centres words, not the baseline; choose one and use it for both. The baseline is the MEV of
    vectors of random words, taken as if they were one. NaN where the vectors do not vary (centred) or are 0.
    """

    def measure(layer_NxD: np.ndarray, index_O: np.ndarray) -> float:
        rows_OxD = np.asarray(layer_NxD[index_O], np.float64)
        squares = (rows_OxD**2).sum()
        if centred:
            rows_OxD = rows_OxD - rows_OxD.mean(0)
        total = (rows_OxD**2).sum()
        if total <= 1e-24 * squares:  # what is left of equal vectors is the rounding of their mean
            return np.nan
        gram = rows_OxD @ rows_OxD.T if len(rows_OxD) < rows_OxD.shape[1] else rows_OxD.T @ rows_OxD
        return np.linalg.eigvalsh(gram)[-1] / total

    return _of_words(vectors_ExNxD, occurrences, measure)


def intra_sentence_similarity(vectors_ExNxD: np.ndarray, sentence_N: np.ndarray) -> np.ndarray:
    """[E, S]: the mean cosine between the words of a sentence and their mean vector (Ethayarajh 2019).

    S are the sentences in ascending order of their number. Leave special tokens out before, by rows.
    """
    sentence_N = np.asarray(sentence_N)
    if vectors_ExNxD.ndim != 3 or sentence_N.shape != vectors_ExNxD.shape[1:2]:
        raise ValueError(f"{sentence_N.shape} sentence numbers do not go with vectors {vectors_ExNxD.shape}")
    order_N = np.argsort(sentence_N, kind="stable")
    starts_S = np.flatnonzero(np.diff(sentence_N[order_N], prepend=sentence_N.min(initial=0) - 1))
    length_S = np.diff([*starts_S, len(sentence_N)])
    found = []
    for layer_NxD in vectors_ExNxD:
        rows_NxD = np.asarray(layer_NxD[order_N], np.float64)
        mean_SxD = _unit(np.add.reduceat(rows_NxD, starts_S) / length_S[:, None])
        cosine_N = (_unit(rows_NxD) * np.repeat(mean_SxD, length_S, axis=0)).sum(1)
        found.append(np.add.reduceat(cosine_N, starts_S) / length_S)
    return np.stack(found)


def adjust(values_ExX: np.ndarray, base_E: np.ndarray) -> np.ndarray:
    """Values [E, ...] less a baseline [E] of each layer, which must be of the same variant: raw of raw, clipped of
    clipped. Luo et al. write it the other way round, but plot this (positional_artefacts.md 1.5)."""
    values_ExX, base_E = np.asarray(values_ExX), np.asarray(base_E)
    if base_E.shape != values_ExX.shape[:1]:
        raise ValueError(f"a baseline {base_E.shape} is not one a layer of {values_ExX.shape}")
    return values_ExX - base_E.reshape(-1, *[1] * (values_ExX.ndim - 1))


def norm_stats(vectors_ExNxD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [E] of the vectors' lengths."""
    norms_ExN = np.stack([np.linalg.norm(np.asarray(layer_NxD, np.float64), axis=1) for layer_NxD in vectors_ExNxD])
    return norms_ExN.mean(1), norms_ExN.std(1)


def isotropy_partition(vectors_ExNxD: np.ndarray) -> np.ndarray:
    """[E]: min Z(c) / max Z(c) of Z(c) = sum_n exp(c . v_n), 1 where the vectors look alike from every direction.

    c are the eigenvectors of V^T V with both signs (Mu & Viswanath 2018; the signs are our choice, an eigenvector has
    none). By log-sum-exp: raw vectors of a BERT, 20 to 30 long, overflow else. It depends on the vectors' scale.
    """
    found = []
    for layer_NxD in vectors_ExNxD:
        rows_NxD = np.asarray(layer_NxD, np.float64)
        _, directions_DxD = np.linalg.eigh(rows_NxD.T @ rows_NxD)
        logits_Nx2D = rows_NxD @ np.concatenate([directions_DxD, -directions_DxD], axis=1)
        log_partition_2D = np.logaddexp.reduce(logits_Nx2D, axis=0)
        found.append(np.exp(log_partition_2D.min() - log_partition_2D.max()))
    return np.array(found)


# ---- which coordinates make the cosine ----------------------------------------------------------------------------


def cosine_contributions(vectors_ExNxD: np.ndarray, pairs_Px2: np.ndarray) -> np.ndarray:
    """[E, D]: the mean over pairs of u_i v_i / (|u| |v|); its sum over D is the anisotropy (Timkey & van Schijndel)."""
    _check(vectors_ExNxD, pairs_Px2)
    sums = [sum((u_PxD * v_PxD).sum(0) for u_PxD, v_PxD in _unit_pairs(x, pairs_Px2)) for x in vectors_ExNxD]
    return np.stack(sums) / len(pairs_Px2)


def top_share(contributions_ExD: np.ndarray, k: int = 3, by: Ranking = "signed") -> tuple[np.ndarray, np.ndarray]:
    """The `k` coordinates that contribute most, [E, k], and their contributions over the anisotropy, [E, k].

    "signed" is the ranking of the paper for contextual models, "absolute" for static vectors. Shares may be negative
    or above 1, and mean little where the anisotropy is near 0.
    """
    dims_ExK = _ranking(contributions_ExD, by)[:, :k]
    return dims_ExK, np.take_along_axis(contributions_ExD, dims_ExK, 1) / contributions_ExD.sum(1, keepdims=True)


def informativity(
    vectors_ExNxD: np.ndarray,
    pairs_Px2: np.ndarray,
    ks: tuple[int, ...] = (1, 3, 5),
    metric: Metric = "cos",
    by: Ranking = "signed",
) -> np.ndarray:
    """[E, K]: r^2 between the similarities of pairs and those without the first k coordinates, for each of `ks`.

    Near 0, a few coordinates decide which pairs are alike; near 1, they tell nothing. "cos" ranks coordinates by their
    mean contribution to the cosine (`by` as in `top_share`), "l2" by mean |u_i - v_i|, and compares Euclidean
    distances (Timkey & van Schijndel 2021). NaN where one side does not vary.
    """
    check_choice("metric", metric, Metric)
    _check(vectors_ExNxD, pairs_Px2)
    found = []
    for layer_NxD in vectors_ExNxD:
        mean_D = sum(_terms(*pair, metric).sum(0) for pair in _raw_pairs(layer_NxD, pairs_Px2))
        order_D = _ranking(mean_D[None], by)[0]
        kept = [order_D[k:] for k in (0, *ks)]
        similar_PxK = np.concatenate(
            [
                np.stack([_similarity(u_PxD[:, dims], v_PxD[:, dims], metric) for dims in kept], axis=1)
                for u_PxD, v_PxD in _raw_pairs(layer_NxD, pairs_Px2)
            ]
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(np.corrcoef(similar_PxK, rowvar=False)[0, 1:] ** 2)
    return np.stack(found)


def _terms(u_PxD: np.ndarray, v_PxD: np.ndarray, metric: str) -> np.ndarray:
    return abs(u_PxD - v_PxD) if metric == "l2" else _unit(u_PxD) * _unit(v_PxD)


def _similarity(u_PxD: np.ndarray, v_PxD: np.ndarray, metric: str) -> np.ndarray:
    return np.linalg.norm(u_PxD - v_PxD, axis=1) if metric == "l2" else (_unit(u_PxD) * _unit(v_PxD)).sum(1)


def _ranking(values_ExD: np.ndarray, by: str) -> np.ndarray:
    check_choice("by", by, Ranking)
    keys_ExD = {"signed": values_ExD, "absolute": abs(values_ExD)}[by]
    return np.argsort(-keys_ExD, axis=1, kind="stable")


# ---- all of it, for one variant -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Figures 4 to 6 of Luo et al. for one variant of the vectors; `plots.geometry` draws some side by side."""

    anisotropy: Estimate
    self_similarity_E: np.ndarray
    """Mean over words, raw."""
    adjusted_E: np.ndarray
    """The same less this variant's anisotropy."""
    mev_E: np.ndarray
    """Mean over words, centred; words whose vectors do not vary left out."""
    mev_words_E: np.ndarray
    """How many are left."""
    words: int


def summarise(vectors_ExNxD: np.ndarray, pairs_Px2: np.ndarray, occurrences: Mapping[str, np.ndarray]) -> Geometry:
    """The geometry of one variant; take the same pairs and occurrences for each variant."""
    between = anisotropy(vectors_ExNxD, pairs_Px2)
    within_E = self_similarity(vectors_ExNxD, occurrences).mean(1)
    shares_ExO = mev(vectors_ExNxD, occurrences)
    known_E = np.isfinite(shares_ExO).sum(1)
    mev_E = np.where(known_E > 0, np.nansum(shares_ExO, axis=1) / np.maximum(known_E, 1), np.nan)
    return Geometry(between, within_E, adjust(within_E, between.mean_E), mev_E, known_E, len(occurrences))


# ---- helpers ------------------------------------------------------------------------------------------------------


def _unit(rows_NxD: np.ndarray) -> np.ndarray:
    rows_NxD = np.asarray(rows_NxD, np.float64)
    norms_Nx1 = np.linalg.norm(rows_NxD, axis=1, keepdims=True)
    return rows_NxD / np.where(norms_Nx1 == 0, 1, norms_Nx1)


def _raw_pairs(layer_NxD: np.ndarray, pairs_Px2: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for first in range(0, len(pairs_Px2), CHUNK):
        chosen_Px2 = np.asarray(pairs_Px2[first : first + CHUNK])
        yield np.asarray(layer_NxD[chosen_Px2[:, 0]], np.float64), np.asarray(layer_NxD[chosen_Px2[:, 1]], np.float64)


def _unit_pairs(layer_NxD: np.ndarray, pairs_Px2: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for u_PxD, v_PxD in _raw_pairs(layer_NxD, pairs_Px2):
        yield _unit(u_PxD), _unit(v_PxD)


def _of_words(vectors_ExNxD: np.ndarray, occurrences: Mapping[str, np.ndarray], measure) -> np.ndarray:
    if vectors_ExNxD.ndim != 3 or not occurrences:
        raise ValueError(f"{len(occurrences)} words and vectors {vectors_ExNxD.shape}: wanted some, and [E, N, D]")
    return np.array([[measure(layer_NxD, index_O) for index_O in occurrences.values()] for layer_NxD in vectors_ExNxD])


def _check(vectors_ExNxD: np.ndarray, pairs_Px2: np.ndarray) -> None:
    shape = np.shape(pairs_Px2)
    if np.ndim(vectors_ExNxD) != 3 or len(shape) != 2 or shape[1] != 2 or not shape[0]:
        raise ValueError(f"pairs {shape} of vectors {np.shape(vectors_ExNxD)}: wanted [P, 2] of [E, N, D]")
    if (lowest := np.min(pairs_Px2)) < 0 or np.max(pairs_Px2) >= vectors_ExNxD.shape[1]:
        raise ValueError(f"pairs from {lowest} to {np.max(pairs_Px2)} of {vectors_ExNxD.shape[1]} vectors")
