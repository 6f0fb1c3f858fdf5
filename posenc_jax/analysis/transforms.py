"""What is done to vectors between encoding and cosines: outliers cut, means taken out, directions removed.

Each function returns a `Transform`. What has to be estimated comes as a sample or its moments and is fixed from then
on, layer by layer. Shape letters: E layers, N vectors, S vectors of the sample, D width.
"""

from collections.abc import Callable, Collection, Mapping

import numpy as np

Transform = Callable[[np.ndarray], np.ndarray]
"""Vectors [E, N, D] -> the same shape and type, each vector by itself; E as in the sample it was fit on."""


def clip_dims(dims: Collection[int] | Mapping[int, Collection[int]]) -> Transform:
    """Sets dimensions to exactly 0 in every layer, or {layer's place: dimensions} (Luo et al. 2021, 4: "clipping").

    It acts on vectors that were read out: the forward pass is that of the whole model, which zeroing LayerNorms
    (`behaviour.zero_ln`) is not. Where LayerNorm comes before the blocks, the layers but "last" are the sum that runs
    through the model: report both.
    """

    if not isinstance(dims, Collection):
        raise ValueError(f"dims={dims!r} is no collection of dimensions; one is [{dims!r}]")

    def clip(vectors_ExNxD: np.ndarray) -> np.ndarray:
        by_layer = dims if isinstance(dims, Mapping) else dict.fromkeys(range(len(vectors_ExNxD)), dims)
        _check_dims(by_layer, vectors_ExNxD.shape)
        clipped_ExNxD = vectors_ExNxD.copy()
        for layer, chosen in by_layer.items():
            clipped_ExNxD[layer][:, list(chosen)] = 0
        return clipped_ExNxD

    return clip


def center(mean_ExD: np.ndarray) -> Transform:
    """Takes the mean away (Mu and Viswanath 2018; Timkey and van Schijndel 2021)."""
    return _float64(lambda vectors_ExNxD: vectors_ExNxD - mean_ExD[:, None], len(mean_ExD))


def standardize(mean_ExD: np.ndarray, std_ExD: np.ndarray) -> Transform:
    """(x - mean) / std in each dimension (Timkey and van Schijndel 2021); one that never varies becomes 0. Both in
    float64, as `Moments` has them: float32 sums leave a deviation where there is none."""
    divisor_Ex1xD = np.where(std_ExD == 0, np.inf, std_ExD)[:, None]
    return _float64(lambda vectors_ExNxD: (vectors_ExNxD - mean_ExD[:, None]) / divisor_Ex1xD, len(mean_ExD))


def all_but_the_top(sample_ExSxD: np.ndarray, components: int, *, centred_projection: bool = True) -> Transform:
    """Takes away the mean and what lies along the first principal directions of the sample (Mu and Viswanath 2018).

    The rule of thumb is D / 100 directions. With `centred_projection` it is (x - m) - sum (u . (x - m)) u, as public
    ports have it; without, (x - m) - sum (u . x) u, as the paper and Timkey's code (positional_artefacts.md 1.8): they
    differ by a constant. Raises `ValueError` for more directions than there are dimensions.
    """
    mean_ExD, _, directions_ExDxD = _principal(sample_ExSxD)
    if not 0 <= components <= mean_ExD.shape[1]:
        raise ValueError(f"{components} directions of {mean_ExD.shape[1]} dimensions")
    top_ExDxK = directions_ExDxD[:, :, :components]

    def remove(vectors_ExNxD: np.ndarray) -> np.ndarray:
        centred_ExNxD = vectors_ExNxD - mean_ExD[:, None]
        shown_ExNxD = centred_ExNxD if centred_projection else vectors_ExNxD
        return centred_ExNxD - (shown_ExNxD @ top_ExDxK) @ top_ExDxK.swapaxes(1, 2)

    return _float64(remove, len(mean_ExD))


def whiten(sample_ExSxD: np.ndarray, tolerance: float = 1e-7) -> Transform:
    """Mean 0 and covariance 1 on the sample, turned back to the old axes (ZCA; the choice of axes is ours and changes
    no cosine). Directions with less than `tolerance` of the largest variance become 0."""
    mean_ExD, variance_ExD, directions_ExDxD = _principal(sample_ExSxD)
    is_real_ExD = variance_ExD > tolerance * variance_ExD[:, :1]
    scale_ExD = np.where(is_real_ExD, 1 / np.sqrt(np.where(is_real_ExD, variance_ExD, 1)), 0)
    matrix_ExDxD = (directions_ExDxD * scale_ExD[:, None]) @ directions_ExDxD.swapaxes(1, 2)
    return _float64(lambda vectors_ExNxD: (vectors_ExNxD - mean_ExD[:, None]) @ matrix_ExDxD, len(mean_ExD))


def rank_transform() -> Transform:
    """Each vector's values by their rank within it, mean 0: cosines become Spearman's correlation over dimensions
    (Timkey and van Schijndel 2021). Equals share their mean rank."""
    from scipy.stats import rankdata

    return _float64(lambda vectors_ExNxD: rankdata(vectors_ExNxD, axis=-1) - (vectors_ExNxD.shape[-1] + 1) / 2)


def l2norm() -> Transform:
    """Length 1; a vector of zeros stays."""

    def scale(vectors_ExNxD: np.ndarray) -> np.ndarray:
        norm_ExNx1 = np.linalg.norm(vectors_ExNxD, axis=-1, keepdims=True)
        return vectors_ExNxD / np.where(norm_ExNx1 == 0, 1, norm_ExNx1)

    return _float64(scale)


def _float64(transform: Transform, layers: int | None = None) -> Transform:
    """Computed in float64, given back in the vectors' own type. Raises `ValueError` for vectors that are not of as many
    layers as the sample."""

    def apply(vectors_ExNxD: np.ndarray) -> np.ndarray:
        if layers not in (None, len(vectors_ExNxD)):
            raise ValueError(f"vectors {vectors_ExNxD.shape} for a transform that was fit on {layers} layers")
        return transform(vectors_ExNxD.astype(np.float64)).astype(vectors_ExNxD.dtype)

    return apply


def _principal(sample_ExSxD: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variances and directions (in columns), of each layer, the largest variance first; float64."""
    means, variances, directions = [], [], []
    for sample_SxD in sample_ExSxD:  # a layer at a time: float64 doubles what it takes
        mean_D = sample_SxD.mean(0, dtype=np.float64)
        centred_SxD = sample_SxD - mean_D
        variance_D, directions_DxD = np.linalg.eigh(centred_SxD.T @ centred_SxD / len(centred_SxD))
        means.append(mean_D)
        variances.append(variance_D[::-1])
        directions.append(directions_DxD[:, ::-1])
    return np.stack(means), np.stack(variances), np.stack(directions)


def _check_dims(by_layer: Mapping[int, Collection[int]], shape: tuple[int, ...]) -> None:
    layers, _, width = shape
    for layer, dims in by_layer.items():
        wrong = [dim for dim in dims if not 0 <= dim < width]
        if wrong or not 0 <= layer < layers:
            raise ValueError(f"layer {layer}, dimensions {wrong or list(dims)}: vectors are {shape}")
