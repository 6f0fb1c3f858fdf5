import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from posenc_jax.config import CompatibilityConfig
from posenc_jax.errors import UsageError
from posenc_jax.model.encoder import Encoder
from tests.oracle import encode_row
from tests.variants import apply, float64, random_params, rows, small_model


def make(variant, rng, **changes):
    encoder = Encoder(small_model(variant, **changes))
    tokens, segments = rows(rng)
    return encoder, random_params(encoder, tokens, segments), tokens, segments


@pytest.mark.parametrize("change", [dict(scan=False), dict(remat=True)], ids=str)
def test_scan_and_remat_each_change_no_output_and_no_gradient(change, rng):
    """One by one; test_properties changes both at once, for every variant."""
    encoder, params, tokens, segments = make("tupe_r", rng)

    def loss(params, encoder):
        return jnp.square(encoder.apply({"params": params}, tokens, segments)).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss), static_argnums=1)(params, encoder)
    other = Encoder(small_model("tupe_r", **change))
    other_value, other_gradient = jax.jit(jax.value_and_grad(loss), static_argnums=1)(params, other)
    np.testing.assert_allclose(other_value, value, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3, rtol=1e-4), other_gradient, gradient)


def test_parameters_stay_float32_under_bfloat16(rng):
    low, params, tokens, segments = make("tupe_r", rng, dtype="bfloat16")
    assert apply(low, params, tokens, segments).dtype == jnp.bfloat16
    fresh = nn.unbox(jax.eval_shape(low.init, jax.random.key(0), tokens, segments))
    assert {leaf.dtype for leaf in jax.tree.leaves(fresh)} == {jnp.dtype("float32")}


@pytest.mark.parametrize("variant", ["bert_a", "bert_ad", "tupe_a"])
def test_length_beyond_the_table_is_refused_by_name(variant):
    encoder = Encoder(small_model(variant))
    with pytest.raises(UsageError, match=r"38 slots .* model.positions.max_length=37"):
        encoder.init(jax.random.key(0), jnp.ones((1, 38), int), jnp.ones((1, 38), int))


@pytest.mark.parametrize("variant", ["sinusoidal", "rope", "alibi", "t5", "shaw_values", "ddrp", "deberta"])
def test_schemes_without_a_table_read_rows_longer_than_max_length(variant, rng):
    encoder = Encoder(small_model(variant, layers=1))
    tokens, segments = rows(rng, batch=1, length=45)
    params = random_params(encoder, tokens, segments)
    got = apply(encoder, params, tokens, segments)
    want = encode_row(float64(params), encoder.config, np.asarray(tokens[0]), np.ones(45), np.arange(45))
    np.testing.assert_allclose(got[0], want, atol=1e-5)


def test_dropout_is_off_without_train_and_random_with_it(rng):
    encoder, params, tokens, segments = make("tupe_r", rng, dropout=0.5, attention_dropout=0.5)
    runs = [
        apply(encoder, params, tokens, segments, train=True, rngs={"dropout": jax.random.key(seed)})
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.allclose(runs[0], runs[2])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(vocab_size=None), "model.vocab_size is not set"),
        (dict(dtype="float64"), "needs JAX_ENABLE_X64=1"),
        (dict(width=31), "model.width=31 is not divisible by model.heads=3"),
        (dict(compatibility=CompatibilityConfig(name="pair")), "model.compatibility.name='pair' is not one of"),
    ],
)
def test_a_config_made_by_hand_is_checked_where_it_is_built(changes, words, rng):
    encoder = Encoder(dataclasses.replace(small_model("bert_a"), **changes))
    with pytest.raises(UsageError, match=words):
        jax.eval_shape(encoder.init, jax.random.key(0), *rows(rng))


def test_where_convolutions_leak_padding_may_have_any_position(rng):
    """Its values reach real words, so a relative term must read the positions it has, whatever is promised."""
    encoder = Encoder(small_model("deberta", "dot_product", "leaking"))
    tokens, segments = rows(rng)
    segments, position = np.array(segments), np.tile(np.arange(23), (3, 1))
    segments[:, :4], position[:, :4], position[:, 4:] = 0, 0, np.arange(19)
    params = random_params(encoder, tokens, segments, position)
    got = apply(encoder, params, tokens, segments, position, contiguous=True)
    want = encode_row(float64(params), encoder.config, np.asarray(tokens[0]), segments[0], position[0])
    np.testing.assert_allclose(got[0, 4:], want[4:], atol=1e-5)
