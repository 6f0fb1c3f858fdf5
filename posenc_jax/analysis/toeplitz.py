"""How far a positional map depends on distance alone, how many dimensions it has, and TUPE's proposition on both.

A relative bias is a Toeplitz matrix: of any rank, with 2 n - 1 free numbers. A product of projected positions has rank
d at most and is free otherwise. So neither holds the other (Ke et al. 2021, Proposition 1 and the argument around it).
"""

import numpy as np
from scipy.linalg import toeplitz as toeplitz_matrix

from posenc_jax.analysis.patterns import diagonal_means


def nearest_toeplitz(map_HxLxL: np.ndarray) -> np.ndarray:
    """Each diagonal replaced by its mean: the Toeplitz matrices nearest in the Frobenius norm, [H, L, L]."""
    length = np.shape(map_HxLxL)[-1]
    means_HxC = diagonal_means(map_HxLxL)
    return np.stack([toeplitz_matrix(means_C[length - 1 :: -1], means_C[length - 1 :]) for means_C in means_HxC])


def distance_from_toeplitz(map_HxLxL: np.ndarray, *, centred: bool = False) -> np.ndarray:
    """||V - diagonal means||^2 / ||V||^2 of each head (tupe.md 5): [H], 0 for a Toeplitz matrix.

    `centred` takes the mean of all cells away first, so that it is the share of the variance that distance does not
    explain: a constant, which no softmax sees, otherwise makes any map look Toeplitz. NaN for a map of zeros.
    """
    map_HxLxL = np.asarray(map_HxLxL, np.float64)
    rest = ((map_HxLxL - nearest_toeplitz(map_HxLxL)) ** 2).sum((1, 2))
    whole = ((map_HxLxL - map_HxLxL.mean((1, 2), keepdims=True) if centred else map_HxLxL) ** 2).sum((1, 2))
    return rest / np.where(whole > 0, whole, np.nan)


def factors(diagonals_C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Proposition 1: B = G D G* of any Toeplitz matrix -> G, complex [n, 2 n], and the diagonal of D, complex [2 n].

    `diagonals_C` are the 2 n - 1 values b of B_jk = b_{k - j}, from -(n - 1) up. G does not depend on them:
    G_jm = exp(i pi (j + 1) m / n) / 2 n. B is embedded in a circulant matrix, which the Fourier transform makes
    diagonal; its one free value, b_n, is set to b_0.
    """
    diagonals_C = np.asarray(diagonals_C)
    if diagonals_C.ndim != 1 or len(diagonals_C) % 2 == 0:
        raise ValueError(f"an n x n Toeplitz matrix has 2 n - 1 diagonals, not values of shape {diagonals_C.shape}")
    n = (len(diagonals_C) + 1) // 2
    behind, ahead = diagonals_C[: n - 1], diagonals_C[n - 1 :]
    circulant = np.concatenate([ahead, ahead[:1], behind])
    eigenvalues = 2 * n * np.fft.ifft(circulant)
    angle = np.pi * np.arange(1, n + 1)[:, None] * np.arange(2 * n)[None] / n
    return np.exp(1j * angle) / (2 * n), 2 * n * eigenvalues


def spectrum(map_HxLxL: np.ndarray) -> np.ndarray:
    """Singular values of each head's map, largest first: [H, L]."""
    return np.linalg.svd(np.asarray(map_HxLxL, np.float64), compute_uv=False)


def numerical_rank(spectrum_HxL: np.ndarray, tolerance: float | None = None) -> np.ndarray:
    """Singular values above `tolerance` times the largest: int [H]. None: L times float32's precision, since maps are
    computed of float32 parameters."""
    spectrum_HxL = np.asarray(spectrum_HxL)
    if tolerance is None:
        tolerance = spectrum_HxL.shape[-1] * np.finfo(np.float32).eps
    return (spectrum_HxL > tolerance * spectrum_HxL.max(-1, keepdims=True)).sum(-1)


def rank_of_share(spectrum_HxL: np.ndarray, share: float = 0.99) -> np.ndarray:
    """How many of the largest singular values hold this share of the sum of their squares: int [H]; 0 for a map of
    zeros."""
    squares_HxL = np.asarray(spectrum_HxL, np.float64) ** 2
    total_Hx1 = squares_HxL.sum(-1, keepdims=True)
    reached_HxL = squares_HxL.cumsum(-1) >= share * total_Hx1 * (1 - 1e-12)
    return np.where(total_Hx1[:, 0] > 0, reached_HxL.argmax(-1) + 1, 0)
