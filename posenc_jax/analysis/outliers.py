"""Outlier dimensions: in the states (Luo et al. 2021), in LayerNorms (Kovaleva 2021, Puccetti 2022), in input tables.

Which dimensions they are is a matter of the checkpoint, so they are always found anew. Dimensions count from 0. Shape
letters: E layers counted with the embedding output, N tokens, D width, n layers of the model, m LayerNorms of a layer,
P rows of a table.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np


class Outlier(NamedTuple):
    """A dimension that stands alone in one layer."""

    dim: int
    sign: int
    """Of its mean: 1 or -1."""
    share: float
    """Of the tokens, those whose largest value, or with sign -1 smallest, is this one."""
    mean: float
    z: float
    """Of the mean among the means of all dimensions."""


def mean_vectors(states_ExNxD: np.ndarray) -> np.ndarray:
    """Float64 [E, D]: the mean over all tokens given (Luo et al. 2021, 3.1: over all subwords)."""
    return states_ExNxD.mean(1, dtype=np.float64)


def extremum_share(states_ExNxD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Float64 [E, D] twice: the share of tokens whose smallest value is in this dimension, and whose largest is (Luo et
    al. 2021, 3.1). Of equals the first counts. The paper pools the layers: `shares[1:].mean(0)`."""
    width = states_ExNxD.shape[2]
    lowest, highest = (
        np.stack([np.bincount(places_N, minlength=width) for places_N in find(states_ExNxD, axis=2)])
        for find in (np.argmin, np.argmax)
    )
    return lowest / states_ExNxD.shape[1], highest / states_ExNxD.shape[1]


def z_scores(mean_ExD: np.ndarray, *, robust: bool) -> np.ndarray:
    """[E, D]: (mean - centre) / spread over the dimensions of a layer.

    Plain: mean and standard deviation, which one spike inflates so that its own z stays under sqrt(D - 1). Robust:
    median, and the median distance to it x 1.4826, which is one deviation of a normal. Where the spread is 0 so is z,
    and infinite of what lies beside it. Raises `ValueError` for a mean that is not finite.
    """
    if not np.isfinite(mean_ExD).all():
        layer, dim = np.argwhere(~np.isfinite(mean_ExD))[0].tolist()
        raise ValueError(f"the mean of layer {layer} is {mean_ExD[layer, dim]} in dimension {dim}: nothing stands out")
    if robust:
        centred_ExD = mean_ExD - np.median(mean_ExD, 1, keepdims=True)
        spread_Ex1 = 1.4826 * np.median(np.abs(centred_ExD), 1, keepdims=True)
    else:
        centred_ExD = mean_ExD - mean_ExD.mean(1, keepdims=True)
        spread_Ex1 = mean_ExD.std(1, keepdims=True)
    beside_ExD = np.where(centred_ExD == 0, 0.0, np.copysign(np.inf, centred_ExD))
    return np.where(spread_Ex1 > 0, centred_ExD / np.where(spread_Ex1 > 0, spread_Ex1, 1), beside_ExD)


def find_outliers(
    mean_ExD: np.ndarray,
    min_share_ExD: np.ndarray,
    max_share_ExD: np.ndarray,
    *,
    share: float = 0.5,
    z: float = 6.0,
    robust: bool = True,
) -> dict[int, list[Outlier]]:
    """{layer's place: its outliers, the farthest first}: dimensions that are the smallest or the largest in at least
    `share` of the tokens, or whose |z| is at least `z`. The three arrays are those of `states.Moments`, or made by
    `mean_vectors` and `extremum_share`. Raises `ValueError` for means that are not finite.

    Luo et al. (2021) give no number and read figures; this rule is ours, so both numbers come with each outlier.
    """
    z_ExD = z_scores(mean_ExD, robust=robust)
    sign_ExD = np.where(mean_ExD >= 0, 1, -1)
    share_ExD = np.where(sign_ExD > 0, max_share_ExD, min_share_ExD)
    is_outlier_ExD = (np.maximum(min_share_ExD, max_share_ExD) >= share) | (np.abs(z_ExD) >= z)
    found = {}
    for layer, is_outlier_D in enumerate(is_outlier_ExD):
        dims = sorted(np.flatnonzero(is_outlier_D), key=lambda dim, z_D=z_ExD[layer]: -abs(z_D[dim]))
        found[layer] = [
            Outlier(int(dim), *(of[layer, dim].item() for of in (sign_ExD, share_ExD, mean_ExD, z_ExD))) for dim in dims
        ]
    return found


def persistent_outliers(
    found: Mapping[int, Sequence[Outlier]], layers: Sequence[str], min_layers: int | None = None
) -> list[int]:
    """Dimensions that are outliers, on one side, in at least `min_layers` of the layers; most layers first.

    `layers` are the names of `found`'s: "last" is layer n once more, after the final LayerNorm, and counts with it. An
    outlier of a model is one that persists: isolated spikes in single layers also come without positions
    (positional_artefacts.md 2.4). None is half of the layers and at least two, our choice; published ones of large
    models last shorter.
    """
    layer_of = {place: place - (layers[place] == "last") for place in found}
    min_layers = max(2, -(-len(set(layer_of.values())) // 2)) if min_layers is None else min_layers
    where = {(layer_of[place], row.dim, row.sign) for place, rows in found.items() for row in rows}
    counts = Counter((dim, sign) for _, dim, sign in where)
    kept = [(number, dim) for (dim, _), number in counts.items() if number >= min_layers]
    return list(dict.fromkeys(dim for _, dim in sorted(kept, key=lambda pair: (-pair[0], pair[1]))))


def layer_norms(encoder: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Scale and bias [n, m, D] of the LayerNorms in each layer of an encoder's parameters, ours or imported, rolled or
    not: attention's and the feed-forward's. With LayerNorm after the blocks the second closes the layer ("output")."""
    norms = [encoder["layers"][name] for name in ("attention_norm", "feed_forward_norm")]
    scale_nxmxD, bias_nxmxD = (np.stack([np.asarray(norm[kind]) for norm in norms], 1) for kind in ("scale", "bias"))
    return scale_nxmxD, bias_nxmxD


def ln_sigma_outliers(
    scale_nxD: np.ndarray, bias_nxD: np.ndarray, *, sigmas: float = 3.0, min_layers: int = 4, most: int = 6
) -> list[tuple[int, int, int]]:
    """[(dimension, layers in which its scale is an outlier, in which its bias is)], by the rule of Puccetti et al.'s
    code (2022, after Kovaleva et al. 2021), on the LayerNorm that closes each layer.

    A value is one where it lies more than `sigmas` deviations (n - 1) from its layer's mean. Scales and biases are
    each ranked by the number of such layers, those under `min_layers` fall away, and the two rankings are taken in
    turn, as far as both go, `most` entries in all. Of equals the higher dimension comes first, ours.
    """
    counts, rankings = [], []
    for values_nxD in (scale_nxD, bias_nxD):
        apart_nxD = np.abs(values_nxD - values_nxD.mean(1, keepdims=True, dtype=np.float64))
        count_D = (apart_nxD > sigmas * values_nxD.std(1, keepdims=True, ddof=1, dtype=np.float64)).sum(0)
        order = sorted(range(len(count_D)), key=lambda dim, count_D=count_D: (-count_D[dim], -dim))
        counts.append(count_D)
        rankings.append([dim for dim in order if count_D[dim] >= min_layers])
    in_turn = list(chain.from_iterable(zip(*rankings, strict=False)))[:most]
    return [(dim, int(counts[0][dim]), int(counts[1][dim])) for dim in dict.fromkeys(in_turn)]


def param_rank(scale_nxmxD: np.ndarray, bias_nxmxD: np.ndarray, dims: Sequence[int], *, absolute: bool) -> np.ndarray:
    """Int [n, m, 2, len(dims)]: 1 for the dimension with the largest scale (0 on the third axis) or bias (1) of its
    LayerNorm, 2 for the next; `absolute` ranks by distance from 0 (Luo et al. 2021, 3.2). Raises `ValueError` for a
    dimension that is not there."""
    width = scale_nxmxD.shape[-1]
    if wrong := [dim for dim in dims if not 0 <= dim < width]:
        raise ValueError(f"dimensions {wrong} of LayerNorms over {width}")
    values_nxmx2xD = np.stack([scale_nxmxD, bias_nxmxD], 2)
    values_nxmx2xD = np.abs(values_nxmx2xD) if absolute else values_nxmx2xD
    chosen = values_nxmx2xD[..., list(dims)]
    return 1 + (values_nxmx2xD[..., None, :] > chosen[..., None]).sum(-1)


class TableOutliers(NamedTuple):
    """Of each row of an input table the dimensions that stand out, and how often each does."""

    argmin_P: np.ndarray
    argmax_P: np.ndarray
    min_share_D: np.ndarray
    max_share_D: np.ndarray
    z_PxD: np.ndarray
    """Of each value among those of its row."""


def table_outliers(table_PxD: np.ndarray) -> TableOutliers:
    """Which dimensions are extreme in the rows of a table of positions, words or types (Luo et al. 2021, 3.2).

    RoBERTa's table has two rows in front that no position uses (`model.positions.offset`): cut them off first.
    """
    table_PxD = np.asarray(table_PxD)
    low_1xD, high_1xD = extremum_share(table_PxD[None])
    z_PxD = z_scores(table_PxD.astype(np.float64), robust=False)
    return TableOutliers(table_PxD.argmin(1), table_PxD.argmax(1), low_1xD[0], high_1xD[0], z_PxD)


def input_tables(encoder: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tables that are added up at an encoder's input: "words", and of "types" and "positions" what it has."""
    tables = {name: np.asarray(encoder[name]) for name in ("words", "types") if name in encoder}
    learned = encoder.get("positions", {}).get("learned")
    return tables if learned is None else {**tables, "positions": np.asarray(learned["table"])}
