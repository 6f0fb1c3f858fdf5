import jax
import jax.numpy as jnp
import pytest

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.model.cost import count_flops, encoder_flops, encoder_parameters
from tests.variants import small_model

SHAPE = jax.ShapeDtypeStruct


def test_a_product_of_matrices_counts_two_a_multiply_and_add():
    a, b = SHAPE((3, 5, 7), jnp.float32), SHAPE((3, 7, 11), jnp.float32)
    assert count_flops(lambda a, b: jnp.einsum("bij,bjk->bik", a, b), a, b) == 2 * 3 * 5 * 7 * 11


def test_other_operations_count_one_a_number_and_moving_counts_nothing():
    x, index = SHAPE((4, 6), jnp.float32), SHAPE((3,), jnp.int32)
    assert count_flops(lambda x: x.T.reshape(3, 8) * 2, x) == 24
    assert count_flops(lambda x: x.sum(), x) == 24
    assert count_flops(lambda x, index: x[index] + 1, x, index) == 18
    assert count_flops(lambda index: index * 2 + 1, index) == 0  # whole numbers


def test_a_loop_counts_every_turn_and_a_jitted_function_its_body():
    x = SHAPE((4,), jnp.float32)
    loop = lambda x: jax.lax.scan(lambda c, _: (jax.jit(jnp.sin)(c), None), x, length=9)[0]  # noqa: E731
    assert count_flops(loop, x) == 36


@pytest.mark.parametrize("change", [dict(), dict(scan=False), dict(remat=True)], ids=str)
def test_an_encoder_costs_the_products_of_its_formula_and_little_else(change):
    """Per word and layer 2 (4 D^2 + 2 D I) for the projections and 4 L D for queries by keys and weights by values."""
    model = ModelConfig(vocab_size=30_522, positions=PositionConfig(scheme="learned"), **change)
    products = 12 * (2 * (4 * 768**2 + 2 * 768 * 3072) + 4 * 512 * 768)
    assert 1 < encoder_flops(model, 512) / 512 / products < 1.01


def test_parameters_are_those_of_the_arrays():
    model = small_model("none")
    D, I, V = model.width, model.feed_forward_width, model.vocab_size  # noqa: E741
    layer = 4 * (D * D + D) + 2 * D * I + I + D + 4 * D
    assert encoder_parameters(model) == V * D + 2 * D + model.layers * layer
