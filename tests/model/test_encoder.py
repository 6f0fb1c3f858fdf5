import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.errors import UsageError
from posenc_jax.model.encoder import Encoder
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.training.state import count_parameters
from tests.oracle import encode_row
from tests.variants import VARIANTS, WITH_POSITIONS, apply, float64, random_params, rows, small_model


def make(variant, rng, **changes):
    encoder = Encoder(small_model(variant, **changes))
    tokens, segments = rows(rng)
    return encoder, random_params(encoder, tokens, segments), tokens, segments


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_float64_oracle_with_padding_and_packed_documents(variant, norm, rng):
    encoder, params, tokens, _ = make(variant, rng, norm=norm)
    segments = np.ones((3, 23), np.int32)
    position = np.tile(np.arange(23), (3, 1))
    segments[0, 17:] = 0
    segments[1, 9:] = 2
    position[1, 9:] -= 9
    segments[2, :4] = 0  # padding on the left
    position[2] = np.maximum(position[2] - 4, 0)
    got = apply(encoder, params, tokens, jnp.asarray(segments), jnp.asarray(position))
    for row in range(3):
        real = segments[row] > 0
        want = encode_row(float64(params), encoder.config, np.asarray(tokens[row]), segments[row], position[row])
        np.testing.assert_allclose(got[row][real], want[real], atol=2e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_does_not_change_real_tokens(variant, rng):
    encoder, params, tokens, segments = make(variant, rng)
    alone = apply(encoder, params, tokens[:, :15], segments[:, :15])
    padded = apply(encoder, params, tokens, segments.at[:, 15:].set(0))
    other = apply(encoder, params, tokens.at[:, 15:].set(9), segments.at[:, 15:].set(0))
    np.testing.assert_allclose(padded[:, :15], alone, atol=1e-5)
    np.testing.assert_array_equal(padded[:, :15], other[:, :15])


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_packing_does_not_change_documents(variant, contiguous, rng):
    encoder, params, tokens, segments = make(variant, rng)
    position = jnp.tile(jnp.arange(23)[None], (3, 1)).at[:, 10:].add(-10)
    packed = apply(encoder, params, tokens, segments.at[:, 10:].set(2), position, contiguous=contiguous)
    first = apply(encoder, params, tokens[:, :10], segments[:, :10])
    second = apply(encoder, params, tokens[:, 10:], segments[:, 10:])
    np.testing.assert_allclose(packed, jnp.concatenate([first, second], 1), atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_words_carry_their_positions_when_slots_are_permuted(variant, rng):
    encoder, params, tokens, segments = make(variant, rng)
    order = rng.permutation(23)
    position = jnp.tile(jnp.arange(23)[None], (3, 1))
    straight = apply(encoder, params, tokens, segments, position)
    permuted = apply(encoder, params, tokens[:, order], segments, position[:, order])
    np.testing.assert_allclose(permuted, straight[:, order], atol=1e-5)


@pytest.mark.parametrize("variant", WITH_POSITIONS)
def test_output_depends_on_word_order(variant, rng):
    encoder, params, tokens, segments = make(variant, rng)
    swapped = tokens.at[:, 5].set(tokens[:, 6]).at[:, 6].set(tokens[:, 5])
    far = [0, *range(10, 23)]
    straight, other = (apply(encoder, params, t, segments)[:, far] for t in (tokens, swapped))
    assert float(jnp.abs(straight - other).max()) > 1e-3


def test_without_a_scheme_word_order_is_invisible(rng):
    encoder, params, tokens, segments = make("none", rng)
    order = rng.permutation(23)
    straight = apply(encoder, params, tokens, segments)
    permuted = apply(encoder, params, tokens[:, order], segments)
    np.testing.assert_allclose(permuted, straight[:, order], atol=1e-5)


@pytest.mark.parametrize("variant", ["bert_r", "tupe_r"])
@pytest.mark.parametrize("change", [dict(scan=True), dict(remat=True), dict(scan=True, remat=True)], ids=str)
def test_scan_and_remat_change_no_output_and_no_gradient(variant, change, rng):
    plain, params, tokens, segments = make(variant, rng)
    other = Encoder(small_model(variant, **change))

    def loss(params, encoder):
        return jnp.square(apply(encoder, params, tokens, segments)).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss), static_argnums=1)(params, plain)
    other_value, other_gradient = jax.jit(jax.value_and_grad(loss), static_argnums=1)(params, other)
    np.testing.assert_allclose(other_value, value, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3, rtol=1e-4), other_gradient, gradient)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_reaches_every_parameter(variant, rng):
    encoder, params, tokens, segments = make(variant, rng)
    tokens = jnp.arange(71 * 23).reshape(71, 23) % 71  # every word somewhere
    target = jax.random.normal(jax.random.key(3), (71, 23, 30))

    def loss(params):
        return (apply(encoder, params, tokens, jnp.ones_like(tokens)) * target).sum()

    for path, gradient in jax.tree_util.tree_leaves_with_path(jax.jit(jax.grad(loss))(params)):
        name = jax.tree_util.keystr(path)
        if "key" in name and "bias" in name:  # moves all logits of a query alike: softmax cannot see it
            continue
        reached = np.abs(gradient).reshape(gradient.shape[0], -1).max(-1) > 0
        if name.endswith("['table']"):  # tables hold more positions and buckets than 23 words use
            assert reached.sum() >= min(12, gradient.shape[0] - 3), name
        else:
            assert reached.all(), name


def test_a_row_of_padding_alone_is_finite_and_its_gradient_too(rng):
    encoder, params, tokens, segments = make("tupe_r", rng)
    segments = segments.at[1].set(0)

    def loss(params):
        return jnp.square(apply(encoder, params, tokens, segments)).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    assert np.isfinite(value) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_bfloat16_stays_near_float32_and_keeps_float32_parameters(rng):
    encoder, params, tokens, segments = make("tupe_r", rng)
    low = Encoder(small_model("tupe_r", dtype="bfloat16"))
    exact = apply(encoder, params, tokens, segments)
    rough = apply(low, params, tokens, segments)
    assert rough.dtype == jnp.bfloat16
    assert float(jnp.abs(exact - rough.astype(jnp.float32)).mean()) < 0.05
    fresh = nn.unbox(jax.eval_shape(low.init, jax.random.key(0), tokens, segments))
    assert {leaf.dtype for leaf in jax.tree.leaves(fresh)} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    ("variant", "count"), [("bert_a", 111_239_936), ("tupe_a", 112_423_424), ("tupe_r", 112_423_820)]
)
def test_base_has_the_published_number_of_parameters(variant, count):
    """tupe.md 1.1, at a vocabulary of 32,768."""
    model = ModelConfig(vocab_size=32_768, positions=PositionConfig(**VARIANTS[variant]))
    assert count_parameters(nn.unbox(jax.eval_shape(Mlm(model).init, jax.random.key(0)))) == count


def test_length_beyond_the_table_is_refused_by_name(rng):
    encoder = Encoder(small_model("bert_a"))
    with pytest.raises(UsageError, match=r"38 slots .* model.positions.max_length=37"):
        encoder.init(jax.random.key(0), jnp.ones((1, 38), int), jnp.ones((1, 38), int))


def test_t5_alone_reads_rows_longer_than_max_length(rng):
    positions = PositionConfig(scheme="t5", max_length=8)
    encoder = Encoder(small_model("none", positions=positions))
    tokens, segments = rows(rng)
    params = random_params(encoder, tokens, segments)
    got = apply(encoder, params, tokens, segments)
    want = encode_row(float64(params), encoder.config, np.asarray(tokens[0]), np.ones(23), np.arange(23))
    np.testing.assert_allclose(got[0], want, atol=2e-5)


def test_dropout_is_off_without_train_and_random_with_it(rng):
    encoder, params, tokens, segments = make("tupe_r", rng, dropout=0.5, attention_dropout=0.5)
    runs = [
        apply(encoder, params, tokens, segments, train=True, rngs={"dropout": jax.random.key(seed)})
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.allclose(runs[0], runs[2])
