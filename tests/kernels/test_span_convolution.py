"""The kernel interpreted, against float64 by hand and against the plain path."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from posenc_jax.config import MeshConfig
from posenc_jax.errors import UsageError
from posenc_jax.kernels.span_convolution import span_convolution
from posenc_jax.kernels.span_plan import refuses
from posenc_jax.layers import affine
from posenc_jax.model.convolution import windowed_sum, within_documents
from posenc_jax.parallel.mesh import make_mesh
from tests.kernels import span_oracle

RESULTS = ("output", "query", "key", "weight", "bias", "value")


def inputs(rng, rows, length, heads, size, slots, dtype=np.float32):
    """Query, key, weight, bias, value and the output's gradient, in numbers that `dtype` has."""
    width = heads * size
    shapes = [(rows, length, width)] * 2 + [(width, heads, slots), (heads, slots)] + [(rows, length, width)] * 2
    scales = [1, 1, 0.5 / np.sqrt(width), 1, 1, 1]  # logits of order 1: of larger ones float32 has no 1e-6
    arrays = [rng.normal(size=shape) * scale for shape, scale in zip(shapes, scales, strict=True)]
    arrays = [np.asarray(jnp.asarray(array, dtype).astype(jnp.float32)) for array in arrays]
    return [jnp.asarray(x, jnp.float32 if place in (2, 3) else dtype) for place, x in enumerate(arrays)]


def documents(kind, rows, length):
    """Segments: None, one document and padding, several documents and padding, or rows of nothing but padding."""
    if kind == "none":
        return None
    segments = np.ones((rows, length), np.int32)
    if kind == "packed":
        segments = 1 + np.minimum(np.arange(length) // 7, 30)[None] + np.zeros((rows, 1), np.int32)
    segments[:, length - length // 5 :] = 0
    segments[0, :3] = 0  # padding may come first
    if kind == "empty row":
        segments[0] = 0
    return segments.astype(np.int32)


def results(f, q, k, w, b, v, g):
    out, gradients = jax.vjp(f, q, k, w, b, v)
    return out, *gradients(g)


def ours(segments, *given):
    return jax.jit(functools.partial(results, lambda *x: span_convolution(*x, segments, interpret=True)))(*given)


def plain(segments, *given):
    """As `model.convolution.Convolution` computes it."""

    def f(q, k, w, b, v):
        rows, length, width = q.shape
        _, heads, slots = w.shape
        q, k, v = (x.reshape(rows, length, heads, -1) for x in (q, k, v))
        kernel = w.reshape(heads, -1, heads, slots).astype(q.dtype)
        logits = affine(q * k, kernel, b.astype(q.dtype), 2)
        window = jax.nn.softmax(logits.astype(jnp.float32)).astype(q.dtype)
        reaches = None if segments is None else within_documents(jnp.asarray(segments), slots)
        return windowed_sum(v, window[:, :, :, None], reaches).reshape(rows, length, width)

    return jax.jit(functools.partial(results, f))(*given)


def error(found, true):
    """The root of the mean square, of that of what is true."""
    return np.linalg.norm(np.asarray(found, np.float64) - true) / np.linalg.norm(true)


SHAPES = [
    (2, 128, 6, 64, 9, "none"),  # ConvBERT base
    (2, 200, 2, 32, 9, "padded"),
    (2, 320, 2, 32, 17, "packed"),
    (1, 384, 2, 64, 3, "packed"),
    (1, 1024, 2, 32, 9, "packed"),
    (2, 64, 2, 32, 9, "empty row"),
    (2, 128, 8, 32, 9, "packed"),
    (2, 32, 2, 64, 1, "padded"),
    (1, 4, 2, 32, 9, "none"),  # a window longer than the row
    (2, 77, 3, 40, 5, "packed"),  # heads across registers, a length that no register has
    (1, 64, 1, 160, 33, "padded"),
    (1, 48, 10, 16, 3, "packed"),  # more heads than one band holds
    (1, 24, 1, 8, 57, "none"),
]


@pytest.mark.parametrize("rows, length, heads, size, slots, kind", SHAPES)
def test_output_and_gradients_are_the_definition(rng, rows, length, heads, size, slots, kind):
    given, segments = inputs(rng, rows, length, heads, size, slots), documents(kind, rows, length)
    true = span_oracle.span_convolution(*given[:5], segments, given[5])
    for name, found, exact in zip(RESULTS, ours(segments, *given), true, strict=True):
        assert np.abs(found - exact).max() <= 1e-6 * max(np.abs(exact).max(), 1e-3), name


@pytest.mark.parametrize(
    "rows, length, heads, size, slots, kind",
    [
        (2, 256, 6, 64, 9, "packed"),
        (2, 200, 2, 32, 17, "padded"),
        (2, 128, 8, 32, 3, "none"),
        (4, 64, 2, 64, 9, "none"),
    ],
)
def test_bfloat16_is_no_coarser_than_the_plain_path(rng, rows, length, heads, size, slots, kind):
    given = inputs(rng, rows, length, heads, size, slots, jnp.bfloat16)
    segments = documents(kind, rows, length)
    true = span_oracle.span_convolution(*given[:5], segments, given[5])
    for name, found, other, exact in zip(RESULTS, ours(segments, *given), plain(segments, *given), true, strict=True):
        assert found.dtype == other.dtype, name
        assert error(found, exact) <= 1.1 * error(other, exact), name


def test_nothing_crosses_documents_or_comes_from_padding(rng):
    given, segments = inputs(rng, 1, 40, 2, 32, 9), documents("packed", 1, 40)
    q, k, w, b, v, _ = given

    def out(v):
        return jax.jit(lambda v: span_convolution(q, k, w, b, v, segments, interpret=True))(v)

    other = jnp.where((segments == 2)[..., None], v, 1e3)
    moved = np.asarray(out(v) != out(other)).any(-1)
    assert not moved[segments == 2].any() and not np.asarray(out(other))[segments == 0].any()
    assert moved[(segments != 2) & (segments > 0)].all()


def test_large_logits_of_one_head_do_not_drown_another(rng):
    q, k, w, b, v, g = inputs(rng, 1, 32, 2, 32, 9)
    b = b + jnp.array([[64.0], [-64.0]])  # exp(-128) is 0 in float32
    true = span_oracle.span_convolution(q, k, w, b, v, None, g)
    for name, found, exact in zip(RESULTS, ours(None, q, k, w, b, v, g), true, strict=True):
        assert np.abs(found - exact).max() <= 1e-5 * np.abs(exact).max(), (
            name
        )  # half a unit in the last place of 64 is 4e-6


def test_rows_over_devices_give_what_one_device_gives(rng):
    given, segments = inputs(rng, 8, 24, 2, 32, 9), documents("packed", 8, 24)
    mesh, rows, whole = make_mesh(MeshConfig(data=8)), PartitionSpec("data"), PartitionSpec()
    local = jax.shard_map(
        functools.partial(span_convolution, interpret=True), mesh=mesh, check_vma=False,
        in_specs=(rows, rows, whole, whole, rows, rows), out_specs=rows,
    )  # fmt: skip
    found = jax.jit(functools.partial(results, lambda *x: local(*x, jnp.asarray(segments))))(*given)
    for name, one, many in zip(RESULTS, ours(segments, *given), found, strict=True):
        np.testing.assert_allclose(many, one, atol=2e-6 * np.abs(one).max(), err_msg=name)


@pytest.mark.parametrize(
    "shape, reason",
    [
        ((2, 32, 8, 64), "takes odd windows up to 113, not 8"),
        ((2, 32, 115, 64), "takes odd windows up to 113, not 115"),
        ((2, 32, 9, 64, "float64"), "computes in float32 or bfloat16, not float64"),
        ((12, 64, 9, 8192), "a row of 8192 words x 768 channels whole, which takes 228 MiB, and there are 128 MiB"),
        ((6, 64, 9, 2048, "bfloat16", "v4"), "takes 30 MiB, and there are 16 MiB of VMEM"),
    ],
)
def test_what_it_cannot_take_is_said(shape, reason):
    assert reason in refuses(*shape)


@pytest.mark.parametrize("shape", [(6, 64, 9, 512), (1, 8, 113, 1), (7, 72, 31, 509, "float32")])
def test_what_it_takes_is_not_refused(shape):
    assert refuses(*shape) is None


def test_a_refused_shape_is_an_error_with_the_reason(rng):
    q, k, w, b, v, _ = inputs(rng, 1, 16, 2, 32, 4)
    with pytest.raises(UsageError, match="odd windows up to 113, not 4"):
        span_convolution(q, k, w, b, v, interpret=True)
