import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc_jax.analysis.toeplitz import (
    distance_from_toeplitz,
    factors,
    nearest_toeplitz,
    numerical_rank,
    rank_of_share,
    spectrum,
)


def by_loops(diagonals_C):
    n = (len(diagonals_C) + 1) // 2
    return np.array([[diagonals_C[k - j + n - 1] for k in range(n)] for j in range(n)])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_proposition_one_every_toeplitz_matrix_is_g_d_g_star(n, seed):
    diagonals_C = np.random.default_rng(seed).normal(size=2 * n - 1)
    g_nx2n, d_2n = factors(diagonals_C)
    assert g_nx2n.shape == (n, 2 * n) and d_2n.shape == (2 * n,)
    np.testing.assert_allclose((g_nx2n * d_2n) @ g_nx2n.conj().T, by_loops(diagonals_C), rtol=0, atol=1e-12)
    other_nx2n, _ = factors(diagonals_C + 1)
    np.testing.assert_array_equal(g_nx2n, other_nx2n)  # one G for all of a size


def test_what_is_no_row_of_diagonals_is_refused():
    for shape in ((4,), (3, 3)):
        with pytest.raises(ValueError, match="2 n - 1 diagonals"):
            factors(np.zeros(shape))


def test_a_toeplitz_matrix_is_at_no_distance_and_noise_at_its_share(rng):
    relative_LxL = by_loops(rng.normal(size=199))
    noise_LxL = rng.normal(size=(100, 100))
    none, some, all_of_it = distance_from_toeplitz(np.stack([relative_LxL, relative_LxL + noise_LxL, noise_LxL]))
    assert none == pytest.approx(0, abs=1e-25)
    assert some == pytest.approx(0.5, abs=0.1)  # as much noise as signal
    assert all_of_it == pytest.approx(1 - 199 / 100**2, abs=0.01)  # a mean for each diagonal is fitted


def test_a_constant_hides_in_the_raw_share_and_not_in_the_centred(rng):
    noise_HxLxL = rng.normal(size=(1, 20, 20))
    assert distance_from_toeplitz(noise_HxLxL + 100)[0] < 1e-3
    np.testing.assert_allclose(
        distance_from_toeplitz(noise_HxLxL + 100, centred=True), distance_from_toeplitz(noise_HxLxL, centred=True)
    )
    assert np.isnan(distance_from_toeplitz(np.zeros((1, 3, 3))))


def test_the_nearest_toeplitz_matrix_is_nearer_than_any_other(rng):
    map_LxL = rng.normal(size=(6, 6))
    nearest_LxL = nearest_toeplitz(map_LxL[None])[0]
    np.testing.assert_allclose(nearest_LxL[1:, 1:], nearest_LxL[:-1, :-1])
    assert nearest_LxL[0, 5] == map_LxL[0, 5] and nearest_LxL[5, 0] == map_LxL[5, 0]
    least = ((map_LxL - nearest_LxL) ** 2).sum()
    for _ in range(20):
        other_LxL = nearest_LxL + by_loops(rng.normal(0, 0.1, 11))
        assert ((map_LxL - other_LxL) ** 2).sum() > least


def test_ranks_of_planted_matrices(rng):
    """A product of projected positions has the rank of a head's width; distances alone reach full rank."""
    low_LxL = rng.normal(size=(40, 8)) @ rng.normal(size=(8, 40))
    full_LxL = by_loops(np.exp(-np.abs(np.arange(-39, 40))))
    found_HxL = spectrum(np.stack([low_LxL, np.float32(low_LxL), full_LxL, np.zeros((40, 40))]))
    assert list(numerical_rank(found_HxL)) == [8, 8, 40, 0]
    assert list(numerical_rank(found_HxL, tolerance=0.99)[:1]) == [1]
    np.testing.assert_allclose((found_HxL[0] ** 2).sum(), (low_LxL**2).sum())
    diagonal = np.diag([10.0, 1.0, 1.0, 0.0])
    shares = [rank_of_share(spectrum(diagonal[None]), share)[0] for share in (0.98, 0.985, 1.0)]
    assert shares == [1, 2, 3]  # 100 of 102, 101 of 102, all
    assert rank_of_share(np.zeros((1, 4)))[0] == 0
