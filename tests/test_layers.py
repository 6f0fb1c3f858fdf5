import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from scipy.special import erf

from posenc_jax.config import MeshConfig, ModelConfig
from posenc_jax.layers import Dropout, Norm, affine, gelu, lookup, repeated
from posenc_jax.parallel.mesh import make_mesh, replicated
from tests.oracle import layer_norm


def test_gelu_is_the_exact_one(rng):
    x = rng.normal(0, 3, 1000)
    np.testing.assert_allclose(gelu(jnp.asarray(x, jnp.float32)), 0.5 * x * (1 + erf(x / np.sqrt(2))), atol=2e-6)


def test_norm_is_exact_where_the_mean_is_far_from_zero(rng):
    """The fast variance, E[x^2] - E[x]^2, loses all digits here."""
    x = rng.normal(1000, 0.1, (4, 64))
    params = {"scale": rng.normal(size=64), "bias": rng.normal(size=64)}
    x_float32 = np.asarray(x, np.float32)
    got = Norm(ModelConfig()).apply({"params": jax.tree.map(jnp.float32, params)}, x_float32)
    np.testing.assert_allclose(got, layer_norm(x_float32.astype(np.float64), params, 1e-5), atol=5e-3)


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("shape", [(200, 129), (200, 640)])
def test_dropout_keeps_the_stated_share_and_the_mean(rate, shape):
    x = jnp.ones(shape)
    got = np.asarray(Dropout(rate).apply({}, x, True, rngs={"dropout": jax.random.key(0)}))
    kept = round(256 * (1 - rate)) / 256
    error = 4 * np.sqrt(kept * (1 - kept) / got.size)
    assert abs((got > 0).mean() - kept) < error
    np.testing.assert_allclose(np.unique(got), [0, 1 / kept], rtol=1e-6)
    columns = (got > 0).mean(0)  # every byte of a shared random word drops
    assert (columns < 1).all() and (columns > 0).all()


def test_dropped_neighbours_are_independent():
    got = np.asarray(Dropout(0.5).apply({}, jnp.ones((2000, 8)), True, rngs={"dropout": jax.random.key(0)})) > 0
    correlation = np.corrcoef(got.T.astype(float)) - np.eye(8)
    assert np.abs(correlation).max() < 5 / np.sqrt(2000)


def test_dropout_is_undone_by_no_one_in_the_backward_pass():
    """What is drawn again there is what was drawn."""
    x = jnp.linspace(1.0, 2.0, 600).reshape(2, 3, 100)

    def dropped(x):
        return Dropout(0.3).apply({}, x, True, rngs={"dropout": jax.random.key(0)})

    slope = jax.grad(lambda x: dropped(x).sum())(x)
    np.testing.assert_allclose(slope * x, dropped(x), rtol=1e-6)


def test_the_written_gradients_of_norm_and_gelu_are_those_of_their_float64_definitions(rng):
    x, g = rng.normal(1, 2, (2, 3, 7, 32))
    params = {"scale": rng.normal(size=32), "bias": rng.normal(size=32)}
    with jax.enable_x64(True):
        norm = lambda x, params: layer_norm_plain(x, params["scale"], params["bias"])  # noqa: E731
        want = jax.vjp(norm, jnp.asarray(x), jax.tree.map(jnp.asarray, params))[1](jnp.asarray(g))
        want_gelu = jax.vjp(lambda x: x * jax.scipy.stats.norm.cdf(x), jnp.asarray(x))[1](jnp.asarray(g))
    got = jax.vjp(lambda x, p: Norm(ModelConfig()).apply({"params": p}, x), *jax.tree.map(jnp.float32, (x, params)))[1](
        jnp.float32(g)
    )
    got_gelu = jax.vjp(gelu, jnp.float32(x))[1](jnp.float32(g))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), (*got, *got_gelu), (*want, *want_gelu)
    )


def layer_norm_plain(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale[None, None] + bias[None, None]


def test_dropout_of_nothing_or_without_training_is_the_identity():
    x = jnp.arange(8.0)[None]
    for rate, train in [(0.0, True), (0.9, False)]:
        np.testing.assert_array_equal(Dropout(rate).apply({}, x, train), x)


@pytest.mark.parametrize(
    ("shape", "inputs", "features"),
    [((3, 5, 4), 1, (7,)), ((3, 5, 6), 1, (2, 3)), ((3, 5, 2, 6), 2, (4,)), ((5, 8), 1, (2,))],
)
def test_affine_and_its_written_gradient_equal_float64(shape, inputs, features, rng):
    """Both orders of the kernel's gradient: more inputs than features, and fewer."""
    x = rng.normal(size=shape)
    kernel, bias = rng.normal(size=(*shape[-inputs:], *features)), rng.normal(size=features)
    y = np.tensordot(x, kernel, inputs) + bias
    g = rng.normal(size=y.shape)
    got, pull = jax.vjp(lambda *args: affine(*args, inputs), *map(jnp.float32, (x, kernel, bias)))
    np.testing.assert_allclose(got, y, atol=1e-5)
    rows = list(range(x.ndim - inputs))
    last = (list(range(len(rows), g.ndim)), list(range(inputs, kernel.ndim)))
    want = np.tensordot(g, kernel, last), np.tensordot(x, g, (rows, rows)), g.sum(tuple(rows))
    for one, other in zip(pull(jnp.float32(g)), want, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(("rows", "shape"), [((32,), (2, 9, 9)), ((4, 5), (300,)), ((1,), (3,))])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_what_all_rows_share_gets_the_sum_of_their_gradients(rows, shape, dtype, rng):
    x, g = jnp.asarray(rng.normal(size=shape), dtype), jnp.asarray(rng.normal(size=(*rows, *shape)), dtype)
    got, pull = jax.vjp(jax.jit(lambda x: repeated(x, rows)), x)
    np.testing.assert_array_equal(got, np.broadcast_to(x, g.shape))
    want = np.asarray(g, np.float64).sum(tuple(range(len(rows))))
    (slope,) = pull(g)
    assert slope.dtype == dtype
    rounding = 1e-5 if dtype == jnp.float32 else 2**-8
    np.testing.assert_allclose(np.asarray(slope, np.float64), want, atol=1e-5, rtol=rounding)


def test_what_all_rows_share_gets_the_sum_over_devices_too(rng):
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    x, g = rng.normal(size=(4, 9)).astype(np.float32), rng.normal(size=(8, 4, 9)).astype(np.float32)
    lies = NamedSharding(mesh, PartitionSpec(("data", "fsdp"), "tensor"))
    with jax.set_mesh(mesh):
        slope = jax.jit(jax.grad(lambda x, g: (repeated(x, (8,)) * g).sum()))(x, jax.device_put(g, lies))
    np.testing.assert_allclose(slope, g.astype(np.float64).sum(0), atol=1e-5)


@pytest.mark.parametrize("ids", [[[0, 3, 3], [15, 8, 7]], [[4, 4, 4], [4, 4, 4]]])
def test_a_table_whose_rows_lie_over_devices_is_read_as_a_whole_one_and_learns_as_one(ids, rng):
    table_VxE, ids, g = jnp.asarray(rng.normal(size=(16, 5)), jnp.float32), jnp.array(ids), rng.normal(size=(2, 3, 5))
    want = np.zeros((16, 5))
    np.add.at(want, np.asarray(ids), g)
    for tensor in (1, 4, 8):
        mesh = make_mesh(MeshConfig(tensor=tensor))

        @functools.partial(jax.jit, static_argnames="mesh")
        def read_and_learn(table_VxE, g, mesh=mesh):
            with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
                rows, pull = jax.vjp(lambda table: lookup(table, ids), table_VxE)
                return rows, *pull(g)

        rows, gradient = read_and_learn(*jax.device_put((table_VxE, np.float32(g)), replicated(mesh)))
        np.testing.assert_array_equal(rows, np.asarray(table_VxE)[np.asarray(ids)])
        np.testing.assert_allclose(gradient, want, atol=1e-6)


def test_a_table_that_does_not_divide_is_read_whole():
    mesh = make_mesh(MeshConfig(tensor=8))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        rows = jax.jit(lookup)(jnp.arange(9.0)[:, None], jnp.array([8, 0]))
    np.testing.assert_array_equal(rows, [[8], [0]])


def test_each_row_draws_its_own_dropout_whatever_rows_stand_beside_it():
    def draw(rows):
        return np.asarray(Dropout(0.5).apply({}, jnp.ones((rows, 64)), True, rngs={"dropout": jax.random.key(0)}))

    np.testing.assert_array_equal(draw(8)[:3], draw(3))
    assert len({row.tobytes() for row in draw(8)}) == 8
