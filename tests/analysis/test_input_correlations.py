import dataclasses

import jax
import numpy as np
import pytest

from posenc_jax.analysis.input_correlations import (
    CONSTANT,
    FOUR,
    input_correlations,
    input_parts,
    mean_over_sentences,
    uniformity,
)
from posenc_jax.errors import UsageError
from posenc_jax.model.encoder import Encoder, all_states
from tests.oracle.basics import layer_norm, pick
from tests.oracle.encoder import queries_and_keys
from tests.oracle.positions import number_of_terms
from tests.variants import float64, random_params, rows, small_model

ARMS = [
    ("bert_a", "dot_product", dict(token_types=2)),
    ("learned_offset", "pairwise", dict(norm="pre")),
    ("sinusoidal_high", "symmetric", dict(embedding_width=14, token_types=2)),
    ("bert_r", "pairwise_diagonal", dict(norm="pre", embedding_width=14)),
    ("tupe+deberta+learned", "dot_product", {}),
]


def make(scheme, compatibility, changes, rng):
    model = small_model(scheme, compatibility, **changes)
    tokens, segments = (np.asarray(x) for x in rows(rng, batch=2, length=9))
    return model, random_params(Encoder(model), tokens, segments), tokens, segments


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm[0])
def test_the_four_and_the_constant_sum_to_the_first_layers_content_logits(arm, rng):
    model, params, tokens, segments = make(*arm, rng)
    position = rng.permutation(37)[:9][None].repeat(2, 0)
    types = rng.integers(0, 2, tokens.shape) if model.token_types else None
    maps = input_correlations(model, params, tokens, position, types)
    exact = float64(params)
    x_BxLxD = np.float64(all_states(model, params, tokens, segments, position, types)[0])
    for row, x_LxD in enumerate(x_BxLxD):
        layer = pick(exact["layers"], 0)
        x_LxD = layer_norm(x_LxD, layer["attention_norm"], model.norm_eps) if model.norm == "pre" else x_LxD
        q, k = queries_and_keys(layer["attention"], model, x_LxD)
        want_HxLxL = q @ k.swapaxes(1, 2) / np.sqrt(number_of_terms(model) * model.head_width)
        np.testing.assert_allclose(sum(maps.values())[row], want_HxLxL, atol=1e-4 * np.abs(want_HxLxL).max())
    assert list(maps) == [*FOUR, CONSTANT]
    assert all(np.abs(map_BxHxLxL).max() > 1e-3 for map_BxHxLxL in maps.values())


def test_each_part_holds_what_its_name_says(rng):
    """With the deviation frozen, doubling the words alone changes the word's part alone, by the deviations' ratio."""
    model, params, tokens, _ = make("bert_a", "dot_product", {}, rng)
    plain = input_parts(model, params, tokens)
    louder = input_parts(model, {**params, "words": 2 * params["words"]}, tokens)
    x = [
        np.float64(params["words"])[tokens] * times + np.float64(params["positions"]["learned"]["table"])[None, :9]
        for times in (1, 2)
    ]
    ratio_BxLx1 = np.sqrt(x[0].var(-1, keepdims=True) + 1e-5) / np.sqrt(x[1].var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(louder.word_BxLxD, 2 * ratio_BxLx1 * plain.word_BxLxD, rtol=1e-6)
    np.testing.assert_allclose(louder.position_BxLxD, ratio_BxLx1 * plain.position_BxLxD, rtol=1e-6)
    np.testing.assert_array_equal(louder.constant_BxLxD, plain.constant_BxLxD)


def test_each_map_is_named_query_before_key(rng):
    model, params, tokens, _ = make("bert_a", "dot_product", {}, rng)
    maps, parts = input_correlations(model, params, tokens), input_parts(model, params, tokens)
    attention = pick(float64(params["layers"]), 0)["attention"]
    sides = {"word": parts.word_BxLxD, "position": parts.position_BxLxD}
    for name in FOUR:
        query, key = (sides[side] for side in name.split("_"))
        q, k = (
            np.einsum("BLD,DHd->BHLd", x, attention[side]["kernel"]) for x, side in ((query, "query"), (key, "key"))
        )
        np.testing.assert_allclose(maps[name], q @ k.swapaxes(-1, -2) / np.sqrt(10), rtol=1e-9, atol=1e-12)


def test_without_positions_all_maps_that_hold_them_are_zero(rng):
    model, params, tokens, segments = make("bert_a", "dot_product", {}, rng)
    params["positions"] = jax.tree.map(np.zeros_like, params["positions"])
    maps = input_correlations(model, params, tokens)
    assert all((maps[name] == 0).all() for name in FOUR[1:])
    found = uniformity(maps, segments)
    np.testing.assert_allclose(found["word_word"].share_H, 1)
    assert (found["word_position"].std_H == 0).all()


@pytest.mark.parametrize("scheme, words", [("tupe_r", "adds no position"), ("none", "adds no position")])
def test_a_scheme_without_positions_at_the_input_is_refused(scheme, words, rng):
    with pytest.raises(UsageError, match=words):
        input_correlations(*make(scheme, "dot_product", {}, rng)[:3])


def test_queries_that_are_turned_are_refused_by_the_parts_name(rng):
    model, params, tokens, _ = make("bert_a", "dot_product", {}, rng)
    positions = dataclasses.replace(model.positions, scheme="learned+rope")
    with pytest.raises(UsageError, match="'rope' changes queries and keys"):
        input_correlations(dataclasses.replace(model, positions=positions), params, tokens)


def test_means_and_deviations_leave_padding_and_other_segments_out(rng):
    map_BxHxLxL = rng.normal(size=(2, 2, 5, 5))
    segments = np.array([[1, 1, 1, 2, 0], [1, 1, 0, 0, 0]])
    mean_HxLxL = mean_over_sentences(map_BxHxLxL, segments)
    np.testing.assert_allclose(mean_HxLxL[:, :2, :2], map_BxHxLxL[:, :, :2, :2].mean(0))
    np.testing.assert_allclose(mean_HxLxL[:, 2, 2], map_BxHxLxL[0, :, 2, 2])
    assert np.isnan(mean_HxLxL[:, 4]).all() and np.isnan(mean_HxLxL[:, 2, 3]).all()
    found = uniformity({"word_word": map_BxHxLxL}, segments)["word_word"]
    first_HxP = np.concatenate([map_BxHxLxL[0, :, :3, :3].reshape(2, -1), map_BxHxLxL[0, :, 3:4, 3]], 1)
    second_HxP = map_BxHxLxL[1, :, :2, :2].reshape(2, -1)
    np.testing.assert_allclose(found.std_H, (first_HxP.std(1) + second_HxP.std(1)) / 2)
    rows = np.ones((2, 3, 5, 5)) * rng.normal(size=(2, 3, 5, 1))
    flat = uniformity({"word_word": rows}, np.ones((2, 5), int))["word_word"]
    assert (flat.std_H > 0.1).all()
    np.testing.assert_allclose(flat.within_rows_H, 0, atol=1e-12)


def test_averages_over_sentences_shrink_what_depends_on_words(rng):
    """The trap of the paper's figure: the mean of the word-position map is flatter than that of any sentence."""
    model = small_model("bert_a")
    tokens, segments = (np.asarray(x) for x in rows(rng, batch=32, length=9))
    maps = input_correlations(model, random_params(Encoder(model), tokens, segments), tokens)
    single = uniformity(maps, segments)
    averages = {name: mean_over_sentences(map_BxHxLxL, segments)[None] for name, map_BxHxLxL in maps.items()}
    of_means = uniformity(averages, np.ones((1, 9), int))
    assert (of_means["word_word"].std_H < 0.5 * single["word_word"].std_H).all()
    assert (of_means["position_position"].std_H > 0.9 * single["position_position"].std_H).all()


def test_no_word_at_all_is_refused():
    with pytest.raises(ValueError, match="without a word"):
        uniformity({"word_word": np.zeros((1, 1, 2, 2))}, np.zeros((1, 2), int))
