"""Outlier dimensions: planted ones are found, and exactly they; the published rules as published."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import rankdata

from posenc_jax.analysis.outliers import (
    Outlier,
    extremum_share,
    find_outliers,
    input_tables,
    layer_norms,
    ln_sigma_outliers,
    mean_vectors,
    param_rank,
    persistent_outliers,
    table_outliers,
    z_scores,
)
from posenc_jax.analysis.transforms import clip_dims
from posenc_jax.model.encoder import Encoder
from tests.variants import random_params, small_model

WIDTH, SPIKE = 96, 30


def planted(rng, layers=4, tokens=600):
    """N(0, 1) with dimension 30 at -9 in layers 1 to 3, and 71 at 8 in layer 2 alone."""
    states = rng.normal(size=(layers, tokens, WIDTH)).astype(np.float32)
    states[1:, :, SPIKE] = -9
    states[2, :, 71] = 8
    return states


def anisotropy(states_NxD):
    """Mean cosine of the n-th vector with the one 300 further on: independent ones."""
    unit = states_NxD.astype(np.float64) / np.linalg.norm(states_NxD, axis=1, keepdims=True)
    return (unit[:300] * unit[300:]).sum(1).mean()


@pytest.mark.parametrize("robust", [True, False])
def test_a_planted_spike_is_found_exactly(robust, rng):
    states = planted(rng)
    found = find_outliers(mean_vectors(states), *extremum_share(states), robust=robust)
    dims = {layer: [(row.dim, row.sign) for row in rows] for layer, rows in found.items()}
    assert dims == {0: [], 1: [(30, -1)], 2: [(30, -1), (71, 1)], 3: [(30, -1)]}
    assert found[1][0].share == 1 and found[1][0].mean == -9 and found[2][1].share > 0.99
    persistent = lambda found, least: persistent_outliers(found, "0123", least)  # noqa: E731
    assert persistent(found, 3) == [30] and persistent(found, 1) == [30, 71] and persistent(found, 4) == []
    flipped = {**found, 3: [found[3][0]._replace(sign=1)]}
    assert persistent(flipped, 2) == [30] and persistent(flipped, 3) == []
    assert abs(found[1][0].z) > 30 if robust else abs(found[1][0].z) < np.sqrt(WIDTH - 1)


@pytest.mark.parametrize(
    "places, layers, expected",
    [
        ((2, 3), ("0", "1", "2", "last"), []),  # the sum after layer 2, and the same once normed
        ((1, 3), ("0", "1", "2", "last"), [5]),
        ((1, 2), ("0", "1", "2"), [5]),
        ((1,), ("0", "1"), []),  # half of the layers, and alone
        ((0, 1), ("0", "1", "2", "3", "4"), []),
        ((0, 1, 4), ("0", "1", "2", "3", "4"), [5]),
    ],
)
def test_an_outlier_that_persists_is_one_of_half_of_the_layers_and_of_two(places, layers, expected):
    found = {place: [Outlier(5, 1, 1.0, 9.0, 30.0)] * (place in places) for place in range(len(layers))}
    assert persistent_outliers(found, layers) == expected


def test_means_that_are_not_finite_stand_out_nowhere():
    mean = np.zeros((2, 4))
    mean[1, 2] = np.nan
    with pytest.raises(ValueError, match="mean of layer 1 is nan in dimension 2"):
        find_outliers(mean, mean, mean)


def test_share_and_z_each_find_what_the_other_does_not(rng):
    states = rng.normal(size=(1, 500, WIDTH)).astype(np.float32)
    states[0, :, 5] += 0.8  # a high mean, seldom the largest
    states[0, :300, 9], states[0, 300:, 9] = 30, -45  # mean 0, mostly the largest
    shares = extremum_share(states)
    assert {row.dim for row in find_outliers(mean_vectors(states), *shares)[0]} == {5, 9}
    assert {row.dim for row in find_outliers(mean_vectors(states), *shares, z=np.inf)[0]} == {9}
    assert {row.dim for row in find_outliers(mean_vectors(states), *shares, share=1.1)[0]} == {5}


def test_clipping_a_planted_spike_restores_anisotropy_near_0(rng):
    """x ~ N(0, I) with one coordinate at c: mean cosine c^2 / (c^2 + d - 1) (positional_artefacts.md 1.10)."""
    states = planted(rng)[:2]
    expected, noise = 81 / (81 + WIDTH - 1), 3 / np.sqrt(WIDTH * 300)
    assert abs(anisotropy(states[1]) - expected) < 0.03
    clipped = clip_dims([SPIKE])(states)
    assert abs(anisotropy(clipped[1])) < noise and abs(anisotropy(states[0])) < noise


def test_z_scores_are_those_of_their_definition(rng):
    mean_ExD = rng.normal(size=(2, 9))
    expected = (mean_ExD - mean_ExD.mean(1, keepdims=True)) / mean_ExD.std(1, keepdims=True)
    np.testing.assert_allclose(z_scores(mean_ExD, robust=False), expected, atol=1e-12)
    row = np.array([[1.0, 2.0, 3.0, 4.0, 100.0]])  # median 3, distances 2 1 0 1 97: MAD 1
    np.testing.assert_allclose(z_scores(row, robust=True), (row - 3) / 1.4826)
    flat = np.array([[0.0, 0.0, 0.0, 5.0]])
    np.testing.assert_array_equal(z_scores(flat, robust=True), [[0, 0, 0, np.inf]])


def test_puccettis_rule_counts_layers_and_takes_both_rankings_in_turn():
    """Against the rule followed by hand on planted LayerNorms."""
    rng = np.random.default_rng(1)
    scale, bias = rng.uniform(0.9, 1.1, (6, 200)), rng.uniform(-0.1, 0.1, (6, 200))
    scale[:, 7] = 9.0  # in 6 layers
    scale[:5, 50] = -8.0  # in 5
    scale[:3, 60] = 8.0  # in 3: too few
    bias[:4, 7] = 5.0  # in 4
    bias[:, 90] = -5.0  # in 6
    bias[:5, 91] = -5.0  # in 5: the third of its ranking, where scales have but two
    found = ln_sigma_outliers(scale, bias)
    assert found == [(7, 6, 4), (90, 0, 6), (50, 5, 0), (91, 0, 5)]
    assert ln_sigma_outliers(scale, bias, most=1) == [(7, 6, 4)]
    assert ln_sigma_outliers(scale, bias, min_layers=6) == [(7, 6, 4), (90, 0, 6)]
    assert ln_sigma_outliers(scale, np.zeros_like(bias)) == []
    one = np.eye(10)[:1]  # one of ten: 9 / sqrt(10) = 2.846 deviations of n - 1, 3 of n
    assert ln_sigma_outliers(one, one, sigmas=2.84, min_layers=1)
    assert not ln_sigma_outliers(one, one, sigmas=2.85, min_layers=1)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("scan", [True, False])
def test_layer_norms_and_tables_come_out_of_our_parameters(norm, scan):
    model = small_model("bert_a", norm=norm, scan=scan, token_types=2)
    word = jnp.ones((1, 8), jnp.int32)
    encoder = random_params(Encoder(model), word, word)
    scale, bias = layer_norms(encoder)
    assert scale.shape == bias.shape == (2, 2, 30)
    np.testing.assert_array_equal(scale[1, 0], encoder["layers"]["attention_norm"]["scale"][1])
    np.testing.assert_array_equal(bias[0, 1], encoder["layers"]["feed_forward_norm"]["bias"][0])
    tables = input_tables(encoder)
    assert {name: table.shape for name, table in tables.items()} == {
        "words": (71, 30),
        "types": (2, 30),
        "positions": (37, 30),
    }
    assert set(input_tables(random_params(Encoder(small_model("t5")), word, word))) == {"words"}


def test_ranks_are_those_of_scipy(rng):
    scale, bias = rng.normal(size=(3, 2, 20)), rng.normal(size=(3, 2, 20))
    for absolute in (True, False):
        ranks = param_rank(scale, bias, [4, 11], absolute=absolute)
        assert ranks.shape == (3, 2, 2, 2)
        for number, values in enumerate((scale, bias)):
            expected = rankdata(-np.abs(values) if absolute else -values, axis=-1)[..., [4, 11]]
            np.testing.assert_array_equal(ranks[:, :, number], expected)


def test_a_spike_in_one_row_of_a_table_and_one_in_all_but_some_are_told_apart(rng):
    """BERT's is in the first position alone, RoBERTa's in nearly all (positional_artefacts.md 3.3)."""
    table = rng.normal(0, 0.05, (50, WIDTH))
    table[0, 12] = -0.9
    table[3:, 40] = 0.7
    found = table_outliers(table)
    assert found.argmin_P[0] == 12 and found.min_share_D[12] < 0.1
    assert (found.argmax_P[3:] == 40).all() and found.max_share_D[40] >= 47 / 50
    assert found.z_PxD.shape == table.shape and found.z_PxD[0, 12] < -8 < 8 < found.z_PxD[10, 40]
