"""What is done to vectors, each against its definition."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from posenc_jax.analysis.transforms import (
    all_but_the_top,
    center,
    clip_dims,
    l2norm,
    rank_transform,
    standardize,
    whiten,
)


@pytest.fixture
def sample(rng):
    """[2, 400, 6], correlated, of different scale and mean in each layer."""
    mix = rng.normal(size=(2, 6, 6))
    return (rng.normal(size=(2, 400, 6)) @ mix + [[[3.0]], [[-8.0]]]).astype(np.float32)


def test_clipping_zeroes_exactly_and_copies(sample):
    before = sample.copy()
    clipped = clip_dims([0, 3])(sample)
    assert (clipped[..., [0, 3]] == 0).all()
    np.testing.assert_array_equal(clipped[..., [1, 2, 4, 5]], sample[..., [1, 2, 4, 5]])
    np.testing.assert_array_equal(sample, before)
    by_layer = clip_dims({1: [2]})(sample)
    assert (by_layer[1, :, 2] == 0).all()
    np.testing.assert_array_equal(by_layer[0], sample[0])


@pytest.mark.parametrize("dims", [[6], [-1], {2: [0]}])
def test_clipping_what_is_not_there_is_refused(dims, sample):
    with pytest.raises(ValueError, match=r"\(2, 400, 6\)"):
        clip_dims(dims)(sample)


def test_standardised_dimensions_have_mean_0_and_deviation_1_in_each_layer(sample):
    sample[1, :, 2], sample[0, :, 4] = 4.0, np.float32(0.1)  # never vary
    std = sample.std(1, dtype=np.float64)
    changed = standardize(sample.mean(1, dtype=np.float64), std)(sample)
    assert changed.dtype == np.float32
    np.testing.assert_allclose(changed.mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(changed.std(1), np.where(std > 0, 1, 0), atol=1e-5)
    np.testing.assert_allclose(center(sample.mean(1))(sample).mean(1), 0, atol=1e-5)


def test_what_is_fit_on_a_sample_is_fixed_for_other_vectors(sample, rng):
    other = rng.normal(size=(2, 9, 6)).astype(np.float32)
    for transform in (whiten(sample), all_but_the_top(sample, 2), center(sample.mean(1))):
        alone = np.concatenate([transform(other[:, n : n + 1]) for n in range(9)], axis=1)
        np.testing.assert_allclose(transform(other), alone, rtol=0, atol=1e-6)


def test_vectors_of_other_layers_than_the_sample_are_refused(sample):
    for transform in (whiten(sample), all_but_the_top(sample, 2), center(sample.mean(1))):
        for vectors in (sample[:1], np.concatenate([sample, sample])):
            with pytest.raises(ValueError, match="fit on 2 layers"):
                transform(vectors)


@pytest.mark.parametrize("centred", [True, False])
def test_all_but_the_top_takes_away_what_principal_components_say(centred, sample):
    changed = all_but_the_top(sample, 2, centred_projection=centred)(sample)
    for layer in range(2):
        fitted = PCA(2).fit(sample[layer].astype(np.float64))
        vectors = sample[layer] - fitted.mean_
        shown = vectors if centred else sample[layer]
        expected = vectors - shown @ fitted.components_.T @ fitted.components_
        np.testing.assert_allclose(changed[layer], expected, rtol=0, atol=1e-4)
        if centred:
            np.testing.assert_allclose(changed[layer] @ fitted.components_.T, 0, atol=1e-4)
    with pytest.raises(ValueError, match="7 directions of 6"):
        all_but_the_top(sample, 7)


def test_white_vectors_have_covariance_1_also_where_dimensions_depend_on_each_other(sample):
    white = whiten(sample)(sample)
    for layer in range(2):
        np.testing.assert_allclose(np.cov(white[layer].T, bias=True), np.eye(6), atol=1e-4)
        np.testing.assert_allclose(white[layer].mean(0), 0, atol=1e-4)
    sample[..., 5] = sample[..., 4]
    white = whiten(sample)(sample)
    assert np.isfinite(white).all()
    np.testing.assert_allclose(np.linalg.eigvalsh(np.cov(white[0].T, bias=True)), [0, 1, 1, 1, 1, 1], atol=1e-3)


def test_cosines_of_ranks_are_spearmans_correlation(sample):
    ranks = rank_transform()(np.round(sample))  # with equals
    a, b = ranks[0, 0].astype(np.float64), ranks[0, 1].astype(np.float64)
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert cosine == pytest.approx(spearmanr(np.round(sample[0, 0]), np.round(sample[0, 1])).statistic, abs=1e-9)


def test_lengths_become_1_but_zero_stays(sample):
    sample[0, 0] = 0
    lengths = np.linalg.norm(l2norm()(sample), axis=-1)
    np.testing.assert_allclose(lengths.ravel()[1:], 1, atol=1e-6)
    assert lengths[0, 0] == 0
