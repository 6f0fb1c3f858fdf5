"""Every map against the oracle, asked with the words that the map says it stands for."""

import dataclasses

import numpy as np
import pytest

from posenc_jax.analysis.position_maps import WORDS, position_maps
from posenc_jax.config import PositionConfig
from posenc_jax.errors import UsageError
from posenc_jax.model.encoder import Encoder, all_states
from posenc_jax.positions.scheme import PARTS
from tests.oracle.basics import layer_norm, pick
from tests.oracle.encoder import queries_and_keys
from tests.oracle.positions import number_of_terms, terms_of_pairs, words_with_positions
from tests.variants import float64, random_params, rows, small_model

LENGTH = 14


def make(scheme, compatibility="dot_product", rng=None, **changes):
    model = small_model(scheme, compatibility, **changes)
    tokens, segments = (np.array(x) for x in rows(rng or np.random.default_rng(0), batch=2, length=11))
    segments[1, 8:] = 0
    return model, random_params(Encoder(model), tokens, segments), tokens, segments


def words_of(model, params, tokens, segments):
    """Unscaled queries and keys [H, N, d] of the words of each layer, by the oracle."""
    states = np.float64(all_states(model, params, tokens, segments))
    for n in range(model.layers):
        layer = pick(float64(params["layers"]), n)
        x_NxD = states[n][segments > 0]
        x_NxD = layer_norm(x_NxD, layer["attention_norm"], model.norm_eps) if model.norm == "pre" else x_NxD
        yield layer["attention"], queries_and_keys(layer["attention"], model, x_NxD)


def terms(model, params, attention, q_Hxd, k_Hxd):
    """The oracle's position terms [H, L, L] where every word has this query and this key."""
    q, k = (np.repeat(x[:, None], LENGTH, 1) for x in (q_Hxd, k_Hxd))
    shared, own = float64(params.get("positions", {})), attention.get("positions", {})
    meet = lambda x: queries_and_keys(attention, model, x)  # noqa: E731
    scale = (number_of_terms(model) * model.head_width) ** -0.5
    return terms_of_pairs(shared, own, model, q, k, meet, np.arange(LENGTH), scale)


def no_words(model):
    return np.zeros((2, model.attention_heads, model.head_width))


@pytest.mark.parametrize("scheme", ["t5", "alibi", "tupe_a", "tupe_a_tie_cls", "tupe_r", "tupe_r_paper"])
def test_biases_are_what_is_added_to_the_logits(scheme):
    model, params, *_ = make(scheme)
    maps = position_maps(model, params, LENGTH)
    wanted = terms(model, params, pick(float64(params["layers"]), 0)["attention"], *no_words(model))
    got = maps[-1] if "+" in model.positions.scheme else maps[0]
    assert (got.name, got.layer) == (model.positions.scheme, None)
    np.testing.assert_allclose(got.map_HxLxL, wanted, atol=1e-5)
    names = {"tupe_r": ["tupe", "tupe, no reset", "t5", "t5, no reset", "tupe+t5"], "tupe_a_tie_cls": ["tupe"]}
    assert [each.name for each in maps] == names.get(scheme, [each.name for each in maps])
    parts = sum(each.map_HxLxL for each in maps if each.name in model.positions.scheme.split("+"))
    np.testing.assert_allclose(parts, wanted, atol=1e-5)


def test_a_table_in_each_layer_is_a_map_of_each_layer():
    model, params, *_ = make("t5_untied_per_layer")
    maps = position_maps(model, params, LENGTH)
    assert [(each.name, each.layer) for each in maps] == [
        (name, layer) for name in ("t5", "t5, no reset") for layer in (1, 2)
    ]
    for n, each in enumerate(maps[:2]):
        attention = pick(float64(params["layers"]), n)["attention"]
        np.testing.assert_allclose(each.map_HxLxL, terms(model, params, attention, *no_words(model)), atol=1e-5)


def test_without_the_reset_tupe_is_the_tied_product_of_the_same_rows():
    """A word at position t reads row t + 1; the reset touches [CLS]'s row and column alone."""
    model, params, *_ = make("tupe_r")
    maps = {each.name: each for each in position_maps(model, params, LENGTH)}
    tied = dataclasses.replace(model, positions=PositionConfig(scheme="tupe+t5", buckets=12, max_distance=20))
    tree = params["positions"]
    tables = {
        "tupe": {**tree["tupe"], "table": tree["tupe"]["table"][1:]},
        "t5": {"table": tree["t5"]["table"][:12]},
    }
    wanted = terms(tied, {**params, "positions": tables}, {}, *no_words(model))
    got = maps["tupe, no reset"].map_HxLxL + maps["t5, no reset"].map_HxLxL
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    np.testing.assert_allclose(maps["tupe+t5"].map_HxLxL[:, 1:, 1:], wanted[:, 1:, 1:], atol=1e-5)
    assert np.ptp(maps["tupe+t5"].map_HxLxL[:, 0], axis=1).max() < 1e-6 < np.ptp(wanted[:, 0], axis=1).min()


WORD_ARMS = [
    ("shaw_values", "dot_product", {}),
    ("shaw_shared", "pairwise", dict(norm="pre")),
    ("shaw_beyond_the_row", "symmetric", {}),
    ("ddrp", "dot_product", {}),
    ("deberta", "dot_product", {}),
    ("deberta_p2c_as_written", "pairwise_symmetrised", {}),
    ("deberta_words", "symmetric", {}),
]


@pytest.mark.parametrize("arm", WORD_ARMS, ids=lambda arm: arm[0])
def test_terms_of_words_are_the_mean_over_the_words_and_their_deviation(arm):
    scheme, compatibility, changes = arm
    model, params, tokens, segments = make(scheme, compatibility, **changes)
    maps = position_maps(model, params, LENGTH, tokens, segments)
    for n, (attention, (q_HxNxd, k_HxNxd)) in enumerate(words_of(model, params, tokens, segments)):
        layer = [each for each in maps if each.layer == n + 1]
        each_word = np.stack(
            [terms(model, params, attention, q_HxNxd[:, i], k_HxNxd[:, i]) for i in range(q_HxNxd.shape[1])]
        )
        assert len(layer) == (2 if scheme in ("deberta", "deberta_words") else 1)
        np.testing.assert_allclose(sum(each.map_HxLxL for each in layer), each_word.mean(0), atol=1e-4)
        if len(layer) == 1:
            np.testing.assert_allclose(layer[0].std_HxLxL, each_word.std(0), atol=1e-4)


def test_rope_is_the_mean_over_all_pairs_of_words_at_each_distance():
    model, params, tokens, segments = make("rope_base")
    maps = position_maps(model, params, LENGTH, tokens, segments)
    place, scale = np.arange(LENGTH), model.head_width**-0.5
    for n, (_, (q_HxNxd, k_HxNxd)) in enumerate(words_of(model, params, tokens, segments)):
        mean, norms = (each for each in maps if each.layer == n + 1)
        pairs = [
            words_with_positions(
                {},
                model,
                *(np.repeat(x[:, i, None], LENGTH, 1) for x, i in zip((q_HxNxd, k_HxNxd), (a, b), strict=True)),
                place,
                scale,
            )
            for a in range(q_HxNxd.shape[1])
            for b in range(q_HxNxd.shape[1])
        ]
        np.testing.assert_allclose(mean.map_HxLxL, np.mean(pairs, 0), atol=1e-4)
        half = model.head_width // 2
        length_Hxp = np.prod([np.sqrt(x[..., :half] ** 2 + x[..., half:] ** 2).mean(1) for x in (q_HxNxd, k_HxNxd)], 0)
        wave_p = 50.0 ** (-np.arange(half) / half)
        wanted = (length_Hxp[:, None] * np.cos(3 * wave_p)).sum(-1) * scale
        np.testing.assert_allclose(norms.map_HxLxL[:, 7, 4], wanted[:, 0], rtol=1e-4)
        assert (norms.map_HxLxL.max((1, 2)) <= norms.map_HxLxL[:, 0, 0] + 1e-4).all()


def test_bert_ad_is_positions_meeting_positions():
    model, params, *_ = make("bert_ad")
    (got,) = position_maps(model, params, LENGTH)
    q, k = (np.zeros((3, LENGTH, 10)),) * 2
    scale = (4 * model.head_width) ** -0.5
    wanted = words_with_positions(float64(params["positions"]), model, q, k, np.arange(LENGTH), scale)
    np.testing.assert_allclose(got.map_HxLxL, wanted, atol=1e-5)


@pytest.mark.parametrize("given", [False, True], ids=["vocabulary", "words"])
@pytest.mark.parametrize("scheme, norm", [("learned_offset", "post"), ("sinusoidal_high", "pre")])
def test_positions_at_the_input_meet_through_the_first_layer_mean_over_words(scheme, norm, given):
    model, params, tokens, segments = make(scheme, norm=norm)
    (got,) = position_maps(model, params, LENGTH, *((tokens, segments) if given else ()))
    assert got.layer == 1 and "our choice" in got.statement
    exact = float64(params)
    known = np.unique(tokens[segments > 0]) if given else np.arange(71)
    words = known[[int(i * (len(known) - 1) / (min(WORDS, len(known)) - 1)) for i in range(min(WORDS, len(known)))]]
    if scheme == "learned_offset":
        p_LxD = exact["positions"]["learned"]["table"][2 : 2 + LENGTH]
    else:
        angle = np.arange(LENGTH)[:, None] / 10_000 ** (np.arange(0, 30, 2) / 30)
        p_LxD = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(LENGTH, 30)
    first = pick(exact["layers"], 0)
    total = 0
    for word in words:
        x_LxD, part_LxD, norms = exact["words"][word] + p_LxD, p_LxD, [exact["norm"]]
        norms += [first["attention_norm"]] if norm == "pre" else []
        for tree in norms:
            deviation_Lx1 = np.sqrt(x_LxD.var(-1, keepdims=True) + model.norm_eps)
            part_LxD = (part_LxD - part_LxD.mean(-1, keepdims=True)) / deviation_Lx1 * tree["scale"]
            x_LxD = layer_norm(x_LxD, tree, model.norm_eps)
        q, k = (np.einsum("LD,DHd->HLd", part_LxD, first["attention"][side]["kernel"]) for side in ("query", "key"))
        total = total + q @ k.swapaxes(1, 2) / np.sqrt(10)
    np.testing.assert_allclose(got.map_HxLxL, total / len(words), atol=1e-5)


def test_every_part_has_a_map_and_a_statement():
    """Of each part that `PARTS` has: none is forgotten when one is added."""
    for name in PARTS:
        model, _, tokens, segments = make("none", layers=1)
        model = dataclasses.replace(model, positions=PositionConfig(scheme=name, max_length=37))
        params = random_params(Encoder(model), tokens, segments)
        maps = position_maps(model, params, 5, tokens, segments)
        assert maps and all(each.map_HxLxL.shape == (3, 5, 5) for each in maps)
        assert all(len(each.statement) > 20 and np.isfinite(each.map_HxLxL).all() for each in maps)
        assert np.ptp(maps[0].map_HxLxL) > 1e-3, name


def test_what_has_no_map_or_needs_words_is_refused_by_name():
    with pytest.raises(UsageError, match="scheme='none' tells no positions"):
        position_maps(*make("none")[:2], LENGTH)
    with pytest.raises(UsageError, match="positions of 'ddrp' act on words"):
        position_maps(*make("ddrp")[:2], LENGTH)
    with pytest.raises(UsageError, match="rows of 38 slots are longer"):
        position_maps(*make("tupe_a")[:2], 38)
    model, params, tokens, segments = make("shaw")
    with pytest.raises(ValueError, match="hold no words"):
        position_maps(model, params, LENGTH, tokens, np.zeros_like(segments))
