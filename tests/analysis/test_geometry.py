"""Geometry against its formulas, the identities of positional_artefacts.md 1.10, and effects that were planted."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc_jax.analysis.geometry import (
    adjust,
    anisotropy,
    cosine_contributions,
    informativity,
    intra_sentence_similarity,
    isotropy_partition,
    mev,
    norm_stats,
    pair_cosines,
    self_similarity,
    summarise,
    top_share,
)

ALL = {"w": np.arange(12)}


def random_pairs(rng, tokens, count):
    first = rng.integers(tokens, size=count)
    return np.stack([first, (first + rng.integers(1, tokens, size=count)) % tokens], axis=1)


def cosine(u, v):
    u, v = np.asarray(u, np.float64), np.asarray(v, np.float64)
    return u @ v / (np.linalg.norm(u) * np.linalg.norm(v))


# ---- against the formulas -----------------------------------------------------------------------------------------


def test_anisotropy_is_the_mean_cosine_with_its_standard_error(rng):
    states = rng.normal(0.3, 1, (3, 40, 8)).astype(np.float32)
    pairs = random_pairs(rng, 40, 25)
    found = anisotropy(states, pairs)
    assert found.count == 25
    for e in range(3):
        values = [cosine(states[e, i], states[e, j]) for i, j in pairs]
        assert found.mean_E[e] == pytest.approx(np.mean(values), abs=1e-12)
        assert found.error_E[e] == pytest.approx(np.std(values, ddof=1) / 5, abs=1e-12)


def test_chunks_of_pairs_change_nothing(rng, monkeypatch):
    states, pairs = rng.normal(0.3, 1, (2, 40, 8)), random_pairs(rng, 40, 25)
    whole = [anisotropy(states, pairs).mean_E, cosine_contributions(states, pairs), informativity(states, pairs)]
    monkeypatch.setattr("posenc_jax.analysis.geometry.CHUNK", 4)
    parts = [anisotropy(states, pairs).mean_E, cosine_contributions(states, pairs), informativity(states, pairs)]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 9), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_self_similarity_is_the_mean_over_all_pairs(count, width, seed):
    """Not half of it, which the paper prints (positional_artefacts.md 1.5)."""
    states = np.random.default_rng(seed).normal(size=(2, 12, width))
    index = np.random.default_rng(seed).permutation(12)[:count]
    found = self_similarity(states, {"w": index})
    for e in range(2):
        expected = np.mean([cosine(states[e, i], states[e, j]) for i, j in itertools.combinations(index, 2)])
        assert found[e, 0] == pytest.approx(expected, abs=1e-10)


def test_intra_sentence_similarity_is_the_cosine_with_the_mean(rng):
    states, sentence = rng.normal(0.2, 1, (2, 9, 5)), np.array([7, 3, 3, 7, 9, 3, 7, 9, 3])
    found = intra_sentence_similarity(states, sentence)
    for e, (s, number) in itertools.product(range(2), enumerate((3, 7, 9))):
        rows = states[e, sentence == number]
        assert found[e, s] == pytest.approx(np.mean([cosine(row, rows.mean(0)) for row in rows]), abs=1e-12)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("count, width", [(12, 5), (4, 9)])
def test_mev_is_the_share_of_the_first_component(rng, centred, count, width):
    states = rng.normal(1, 1, (2, 12, width))
    found = mev(states, {"a": np.arange(count), "b": np.arange(12)}, centred)
    for e in range(2):
        rows = states[e, :count] - (states[e, :count].mean(0) if centred else 0)
        squares = np.linalg.svd(rows, compute_uv=False) ** 2
        assert found[e, 0] == pytest.approx(squares[0] / squares.sum(), abs=1e-12)


def test_mev_centred_is_that_of_scikit_learns_pca(rng):
    from sklearn.decomposition import PCA

    states = rng.normal(2, [[[1, 5, 1, 1]]], (1, 12, 4))
    assert mev(states, ALL)[0, 0] == pytest.approx(PCA().fit(states[0]).explained_variance_ratio_[0])


def test_isotropy_is_the_ratio_of_partition_sums(rng):
    states = rng.normal(0.1, 0.5, (2, 30, 6))
    for e, found in enumerate(isotropy_partition(states)):
        _, vectors = np.linalg.eigh(states[e].T @ states[e])
        sums = [np.exp(sign * states[e] @ c).sum() for c in vectors.T for sign in (1, -1)]
        assert found == pytest.approx(min(sums) / max(sums), rel=1e-10)


def test_isotropy_does_not_overflow_at_the_norms_of_a_bert(rng):
    long = rng.normal(size=(1, 50, 16)) * 250
    assert 0 <= isotropy_partition(long)[0] < 1
    assert isotropy_partition(np.concatenate([long, -long], axis=1) * 1e-3)[0] > 0.9


def test_informativity_is_the_squared_correlation_without_the_first_coordinates(rng):
    states, pairs = rng.normal([0, 3, 0, 1, 0, 0], 1, (2, 40, 6)), random_pairs(rng, 40, 60)
    u, v = (states[:, pairs[:, side]] for side in (0, 1))
    for e in range(2):
        cosines, distances = (
            np.array([cosine(*x) for x in zip(u[e], v[e], strict=True)]),
            np.linalg.norm(u[e] - v[e], axis=1),
        )
        by_cosine = np.argsort(-cosine_contributions(states, pairs)[e])
        by_distance = np.argsort(-abs(u[e] - v[e]).mean(0))
        for place, k in enumerate((1, 3)):
            left = np.delete(np.arange(6), by_cosine[:k])
            less = [cosine(x, y) for x, y in zip(u[e][:, left], v[e][:, left], strict=True)]
            expected = np.corrcoef(cosines, less)[0, 1] ** 2
            assert informativity(states, pairs, (1, 3))[e, place] == pytest.approx(expected, abs=1e-10)
            left = np.delete(np.arange(6), by_distance[:k])
            less = np.linalg.norm(u[e][:, left] - v[e][:, left], axis=1)
            expected = np.corrcoef(distances, less)[0, 1] ** 2
            assert informativity(states, pairs, (1, 3), "l2")[e, place] == pytest.approx(expected, abs=1e-10)


def test_norms_are_those_of_the_vectors(rng):
    states = rng.normal(size=(2, 7, 3)).astype(np.float32)
    norms = np.sqrt((states.astype(np.float64) ** 2).sum(2))
    for ours, theirs in zip(norm_stats(states), (norms.mean(1), norms.std(1)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


# ---- identities (positional_artefacts.md 1.10 and 5) --------------------------------------------------------------


def test_contributions_sum_to_the_cosine(rng):
    states, pairs = rng.normal(0.4, 1, (3, 30, 7)), random_pairs(rng, 30, 50)
    contributions = cosine_contributions(states, pairs)
    np.testing.assert_allclose(contributions.sum(1), anisotropy(states, pairs).mean_E, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        cosine_contributions(states, pairs[:1]).sum(1), pair_cosines(states, pairs[:1])[:, 0], atol=1e-12
    )


def test_a_cosine_is_the_clipped_parts_and_what_is_left(rng):
    """cos(u, v) = sum over K of CC_k + sqrt((1 - r_u)(1 - r_v)) cos(clip u, clip v)."""
    states, pairs, dims = rng.normal(0.4, 1, (2, 30, 7)), random_pairs(rng, 30, 20), [1, 5]
    clipped = states.copy()
    clipped[:, :, dims] = 0
    share = 1 - (states[:, :, dims] ** 2).sum(2) / (states**2).sum(2)
    raw, rest = pair_cosines(states, pairs), pair_cosines(clipped, pairs)
    for e, (p, (i, j)) in itertools.product(range(2), enumerate(pairs)):
        parts = cosine_contributions(states, pairs[p : p + 1])[e, dims].sum()
        assert raw[e, p] == pytest.approx(parts + np.sqrt(share[e, i] * share[e, j]) * rest[e, p], abs=1e-12)


@pytest.mark.parametrize("constant, printed", [(7.0, 0.060), (22.1, 0.389)])
def test_one_constant_coordinate_makes_the_anisotropy_that_theory_says(rng, constant, printed):
    """c^2 / (c^2 + d - 1), d = 768; near 0 once the coordinate is clipped, and all of it that coordinate's."""
    states = rng.normal(size=(1, 2000, 768)).astype(np.float32)
    states[:, :, 557] = constant
    pairs = np.arange(2000).reshape(1000, 2)
    raw = anisotropy(states, pairs)
    assert raw.mean_E[0] == pytest.approx(constant**2 / (constant**2 + 767), abs=4 * raw.error_E[0] + 1e-3)
    assert raw.mean_E[0] == pytest.approx(printed, abs=0.005)
    dims, share = top_share(cosine_contributions(states, pairs), 1)
    assert dims[0, 0] == 557 and share[0, 0] == pytest.approx(1, abs=0.05)
    states[:, :, 557] = 0
    assert abs(anisotropy(states, pairs).mean_E[0]) < 3 / np.sqrt(768 * 1000)


def test_gaussian_vectors_are_isotropic(rng):
    """|A| < 3 / sqrt(d n); a standard error of 1 / sqrt(d n)."""
    states, pairs = rng.normal(size=(4, 2000, 64)), np.arange(2000).reshape(1000, 2)
    found = anisotropy(states, pairs)
    assert (abs(found.mean_E) < 3 / np.sqrt(64 * 1000)).all()
    np.testing.assert_allclose(found.error_E, 1 / np.sqrt(64 * 1000), rtol=0.1)


def test_identical_vectors_are_alike_in_every_measure(rng):
    states = np.repeat(rng.normal(size=(2, 1, 6)), 12, axis=1).astype(np.float32)
    np.testing.assert_allclose(self_similarity(states, ALL), 1, atol=1e-12)
    np.testing.assert_allclose(intra_sentence_similarity(states, np.zeros(12, int)), 1, atol=1e-12)
    np.testing.assert_allclose(mev(states, ALL, centred=False), 1, atol=1e-12)
    assert np.isnan(mev(states, ALL)).all()
    assert anisotropy(states, np.array([[0, 1]])).mean_E == pytest.approx([1, 1])


def test_orthogonal_vectors_have_nothing_in_common():
    states = np.eye(12)[None] * np.arange(1, 13)[None, :, None]
    assert self_similarity(states, ALL)[0, 0] == pytest.approx(0, abs=1e-12)
    assert anisotropy(states, np.array([[0, 1], [3, 7]])).mean_E[0] == 0


def test_cosine_measures_do_not_know_the_scale(rng):
    states, pairs = rng.normal(0.2, 1, (2, 12, 5)), random_pairs(rng, 12, 9)
    other = states * rng.uniform(0.1, 9, (2, 12, 1))
    for measure in (anisotropy, cosine_contributions):
        one, two = (np.hstack(np.atleast_1d(*measure(x, pairs)[:1])) for x in (states, other))
        np.testing.assert_allclose(one, two, rtol=1e-10)
    np.testing.assert_allclose(self_similarity(states, ALL), self_similarity(other, ALL), rtol=1e-10)


def test_a_vector_of_zeros_has_the_cosine_zero(rng):
    states = rng.normal(size=(1, 12, 4))
    states[0, 0] = 0
    assert pair_cosines(states, np.array([[0, 1]]))[0, 0] == 0
    assert np.isfinite(intra_sentence_similarity(states, np.arange(12))).all()
    rest = {"w": np.arange(1, 12)}
    assert self_similarity(states, ALL)[0, 0] * 132 == pytest.approx(self_similarity(states, rest)[0, 0] * 110)


# ---- planted ------------------------------------------------------------------------------------------------------


def test_shares_are_ranked_by_sign_or_by_size():
    contributions = np.array([[0.1, -0.3, 0.4, 0.2]])
    dims, share = top_share(contributions, 2)
    assert dims.tolist() == [[2, 3]] and share == pytest.approx(np.array([[1.0, 0.5]]))
    assert top_share(contributions, 2, "absolute")[0].tolist() == [[2, 1]]


def test_a_few_coordinates_decide_which_words_are_alike(rng):
    """Without the one coordinate that varies much, nothing is left of who was like whom."""
    states, pairs = rng.normal(size=(1, 500, 32)), random_pairs(rng, 500, 2000)
    even = informativity(states, pairs, (1,))[0, 0]
    states[:, :, 4] *= 40
    assert even > 0.9 and informativity(states, pairs, (1,))[0, 0] < 0.05
    assert informativity(states, pairs, (1,), "l2")[0, 0] < 0.05


def test_informativity_of_vectors_that_do_not_vary_is_not_a_number():
    assert np.isnan(informativity(np.ones((1, 4, 3)), np.array([[0, 1], [2, 3]]), (1,))).all()


def test_words_of_their_own_direction_have_more_in_common_than_random_ones(rng):
    """A word is one direction, one coordinate an outlier: clipping lowers raw self-similarity, raises the adjusted."""
    centres = rng.normal(size=(20, 64))
    states = (np.repeat(centres, 10, axis=0) + rng.normal(size=(200, 64)))[None]
    states[:, :, 3] = 20
    clipped = states.copy()
    clipped[:, :, 3] = 0
    words = {str(w): np.arange(10 * w, 10 * w + 10) for w in range(20)}
    pairs = np.stack([np.arange(100), 199 - np.arange(100)], axis=1)
    raw, less = (summarise(x, pairs, words) for x in (states, clipped))
    assert raw.words == less.words == 20 and raw.anisotropy.count == 100
    assert raw.self_similarity_E > less.self_similarity_E + 0.2 and raw.adjusted_E < less.adjusted_E - 0.2
    assert less.adjusted_E == pytest.approx(less.self_similarity_E - less.anisotropy.mean_E)
    assert raw.mev_E == pytest.approx(less.mev_E)  # a constant coordinate has no variance
    np.testing.assert_allclose(raw.mev_E, mev(states, words).mean(1))
    assert (raw.mev_words_E == len(words)).all()


def test_a_layer_is_adjusted_by_its_own_baseline():
    values = np.arange(6.0).reshape(2, 3)
    assert adjust(values, np.array([1.0, 3])).tolist() == [[-1, 0, 1], [0, 1, 2]]
    assert adjust(values[:, 0], np.array([1.0, 3])).tolist() == [-1, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: anisotropy(np.ones((3, 4)), np.array([[0, 1]])),
        lambda: anisotropy(np.ones((1, 3, 4)), np.array([0, 1])),
        lambda: cosine_contributions(np.ones((1, 3, 4)), np.zeros((0, 2), int)),
        lambda: anisotropy(np.ones((1, 3, 4)), [[0, 1, 2]]),
        lambda: anisotropy(np.ones((1, 3, 4)), np.array([[0, -1]])),
        lambda: anisotropy(np.ones((1, 3, 4)), np.array([[0, 3]])),
        lambda: self_similarity(np.ones((1, 3, 4)), {"w": np.array([1])}),
        lambda: mev(np.ones((1, 3, 4)), {}),
        lambda: adjust(np.ones((2, 3)), np.ones(3)),
        lambda: intra_sentence_similarity(np.ones((1, 3, 4)), np.ones(4)),
    ],
)
def test_arrays_that_make_no_sense_are_refused(call):
    with pytest.raises(ValueError, match=r"wanted|of 3 vectors|1 occurrence|not one a layer|do not go with"):
        call()
