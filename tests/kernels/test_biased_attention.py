"""The attention kernel in interpret mode against its definition in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from posenc_jax.errors import UsageError
from posenc_jax.kernels.biased_attention import biased_attention, refuses
from posenc_jax.model.attention import MASKED, Context
from tests.kernels import attention_oracle as oracle

SEED = np.array([0x9E3779B9, 5], np.uint32)
KEPT = 230  # dropout of 0.1, to the nearest 1/256


def segments_of(length):
    """Words only; padding on the right; on the left; three packed texts, one of a single word, and padding; no word."""
    segments = np.ones((5, length), np.int32)
    segments[1, -length // 3 :] = 0
    segments[2, : length // 4] = 0
    segments[3] = np.repeat([1, 2, 3, 0], [length // 3, 1, length // 2, length - length // 3 - length // 2 - 1])
    segments[4] = 0
    return segments


def case(length, heads, width, bias, rows=5, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    q, k, v, g = (rng.normal(size=(rows, length, heads, width)) for _ in range(4))
    q *= width**-0.5
    shapes = {"matrix": (heads, length, length), "table": (heads, 2 * length - 1), "none": None}
    b = None if bias == "none" else rng.normal(size=shapes[bias])
    words = [np.asarray(jnp.asarray(x, dtype)) for x in (q, k, v, g)]
    return [*words, None if b is None else b.astype(np.float32)], segments_of(length)[-rows:]


def kernel(arrays, segments, bias, **options):
    """The output and all gradients."""
    *words, g, b = arrays

    def out(q, k, v, b):
        given = {"table_HxD": b} if bias == "table" else {"bias_HxLxL": b}
        return biased_attention(q, k, v, segments, interpret=True, **given, **options)

    value, pull = jax.vjp(out, *words, b)
    return value, *pull(g)


def exact(arrays, segments, bias, factors=None):
    q, k, v, g, b = (None if x is None else np.asarray(x, np.float64) for x in arrays)
    b = oracle.matrix_of(b, q.shape[1]) if bias == "table" else b
    *found, g_b = oracle.attention(q, k, v, g, segments, b, factors)
    return *found, {"none": None, "matrix": g_b, "table": oracle.table_of(g_b)}[bias]


def error(found, want):
    return np.abs(np.asarray(found, np.float64) - want).max() / np.abs(want).max()


@jax.jit
def plain(q, k, v, g, b, segments):
    """The path of `model.attention`, and its gradients."""
    may_meet_BxLxL = Context(segments, None, None, None).may_meet()

    def out(q, k, v, b):
        logits_BxHxLxL = jnp.einsum("BQHd,BKHd->BHQK", q, k, preferred_element_type=jnp.float32)
        logits_BxHxLxL = logits_BxHxLxL if b is None else logits_BxHxLxL + b[None]
        weights_BxHxLxL = jax.nn.softmax(jnp.where(may_meet_BxLxL[:, None], logits_BxHxLxL, MASKED))
        return jnp.einsum("BHQK,BKHd->BQHd", weights_BxHxLxL.astype(v.dtype), v)

    value, pull = jax.vjp(out, q, k, v, b)
    return value, *pull(g)


# ---- accuracy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "length, heads, width, bias, dropout, rows",
    [
        (24, 3, 64, "none", 0, 5),  # the second block has one head of its two
        (24, 2, 128, "matrix", 0.1, 5),
        (23, 5, 8, "table", 0.1, 5),
        (200, 3, 32, "table", 0.1, 5),
        (320, 2, 64, "matrix", 0.1, 5),
        (384, 3, 64, "table", 0, 5),
        (640, 1, 16, "matrix", 0.1, 3),  # more keys than the bytes of one random word serve
        (1024, 2, 64, "matrix", 0, 2),
    ],
)
def test_output_and_gradients_equal_the_definition(length, heads, width, bias, dropout, rows):
    """1e-6 of the largest entry: padding on both sides, packed texts and a row without a word among the rows."""
    arrays, segments = case(length, heads, width, bias, rows)
    factors = oracle.kept(SEED, np.arange(heads), np.arange(rows), length, KEPT) * (256 / KEPT) if dropout else None
    found = jax.jit(lambda arrays: kernel(arrays, segments, bias, dropout=dropout, seed_2=SEED))(arrays)
    for got, want in zip(found, exact(arrays, segments, bias, factors), strict=True):
        assert (got is None and want is None) or error(got, want) <= 1e-6


@pytest.mark.parametrize("length, heads, width, bias", [(200, 2, 64, "matrix"), (128, 4, 32, "none")])
def test_in_bfloat16_as_exact_as_the_plain_path(length, heads, width, bias):
    """Root mean squares. Lengths at which XLA's CPU backend rounds what the program rounds; at some it does not."""
    arrays, segments = case(length, heads, width, bias, dtype=jnp.bfloat16)
    found = jax.jit(lambda arrays: kernel(arrays, segments, bias))(arrays)
    for got, peer, want in zip(found, plain(*arrays, segments), exact(arrays, segments, bias), strict=True):
        if want is not None:
            got, peer = (np.sqrt(np.mean((np.asarray(x, np.float64) - want) ** 2)) for x in (got, peer))
            assert got <= 1.1 * peer


def test_a_bias_in_bfloat16_gets_a_gradient_in_bfloat16():
    arrays, segments = case(24, 2, 64, "matrix")
    arrays[-1] = jnp.asarray(arrays[-1], jnp.bfloat16)
    *_, got = kernel(arrays, segments, "matrix")
    assert got.dtype == jnp.bfloat16 and error(got, exact(arrays, segments, "matrix")[-1]) <= 2**-8


def test_a_row_without_a_word_is_the_mean_of_its_values_and_moves_nothing_but_them():
    arrays, _ = case(24, 2, 64, "matrix")
    out, g_q, g_k, g_v, g_bias = kernel(arrays, np.zeros((5, 24), np.int32), "matrix")
    values = arrays[2].mean(1, keepdims=True)
    np.testing.assert_allclose(out, np.broadcast_to(values, out.shape), atol=1e-6)
    assert not np.any(g_q) and not np.any(g_k) and not np.any(g_bias) and np.all(np.any(g_v, axis=(1, 2, 3)))


# ---- dropout ------------------------------------------------------------------------------------------------------


def kept_by_the_kernel(length, heads, rows_B, seed=SEED, **options):
    """Boolean [rows, heads, L, L]: with even weights and one-hot values the output is the keep mask."""
    words = np.zeros((len(rows_B), length, heads, length), np.float32)
    values = words + np.eye(length, dtype=np.float32)[None, :, None]
    segments = np.ones(words.shape[:2], np.int32)
    out = biased_attention(
        words, words, values, segments, rows_B=rows_B, dropout=0.1, seed_2=seed, interpret=True, **options
    )
    return np.asarray(out).transpose(0, 2, 1, 3) > 0


def test_draws_belong_to_the_row_and_the_head_wherever_they_lie():
    whole = kept_by_the_kernel(128, 3, np.arange(4))
    np.testing.assert_array_equal(whole, oracle.kept(SEED, np.arange(3), np.arange(4), 128, KEPT))
    np.testing.assert_array_equal(kept_by_the_kernel(128, 1, np.array([3, 1]), first_head=2), whole[[3, 1], 2:])


def test_the_keep_rate_is_that_of_fair_draws():
    """Of a head and a row, of a query, of a key and of all: none off by six deviations, and in the mean by one."""
    rate = KEPT / 256
    kept = oracle.kept(SEED, np.arange(6), np.arange(8), 512, KEPT)
    for axes in ((2, 3), (3,), (2,)):
        rates = kept.mean(axes)
        deviations = (rates - rate) / (rate * (1 - rate) * rates.size / kept.size) ** 0.5
        assert np.abs(deviations).max() < 6
        assert abs(np.mean(deviations**2) - 1) < 5 * (2 / rates.size) ** 0.5
    assert abs(kept.mean() - rate) < 4 * (rate * (1 - rate) / kept.size) ** 0.5


def test_neighbours_and_other_seeds_draw_apart():
    """Correlations of the draws of neighbouring queries, keys, blocks of keys, heads, rows and seeds: none."""
    rate = KEPT / 256
    first, second = (
        (oracle.kept(seed, np.arange(4), np.arange(8), 512, KEPT) - rate) / (rate * (1 - rate)) ** 0.5
        for seed in (SEED, SEED + np.array([1, 0], np.uint32))
    )
    pairs = [(first, second), (first[:-1], first[1:]), (first[:, :-1], first[:, 1:])]
    for step in (1, 2, 3, 64, 128, 256):
        pairs += [(first[..., :-step], first[..., step:]), (first[..., :-step, :], first[..., step:, :])]
    for one, other in pairs:
        assert abs(np.sum(one * other)) < 5 * one.size**0.5


# ---- on a mesh ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", [(), ("data",)], ids=["at_once", "inside_a_part"])
def test_eight_devices_compute_what_one_does(outer):
    """Rows over two axes, heads over one; the bias's gradient is summed over the rows'. Also where the training step
    has made "data" its own already."""
    mesh = jax.make_mesh((2, 2, 2), ("data", "fsdp", "tensor"), axis_types=(AxisType.Auto,) * 3)
    inner = tuple(axis for axis in ("data", "fsdp") if axis not in outer)
    arrays, segments = case(24, 4, 32, "matrix", rows=4)
    arrays, segments = (
        [x if i == 4 else np.concatenate([x, x]) for i, x in enumerate(arrays)],
        np.tile(segments, (2, 1)),
    )

    def part(q, k, v, b, segments, rows):
        first_head = jax.lax.axis_index("tensor") * q.shape[2]
        options = {"rows_B": rows, "first_head": first_head, "dropout": 0.1, "seed_2": SEED, "interpret": True}
        return biased_attention(q, k, v, segments, b, **options)

    def spread(function, rows, heads, axes):
        words, rows = PartitionSpec(rows, None, heads), PartitionSpec(rows)
        specs = {"in_specs": (words,) * 3 + (PartitionSpec(heads), rows, rows), "out_specs": words}
        return jax.shard_map(function, axis_names=set(axes), check_vma=False, **specs)

    @jax.jit
    def several(q, k, v, g, b):
        function = spread(part, inner, "tensor", (*inner, "tensor"))
        function = spread(function, outer, None, outer) if outer else function
        value, pull = jax.vjp(lambda *x: function(*x, segments, jnp.arange(8)), q, k, v, b)
        return value, *pull(g)

    with jax.set_mesh(mesh):
        found = several(*arrays)
    alone = jax.jit(lambda arrays: kernel(arrays, segments, "matrix", dropout=0.1, seed_2=SEED))(arrays)
    for got, want in zip(found, alone, strict=True):
        assert error(got, np.asarray(want, np.float64)) <= 1e-6


# ---- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, word",
    [
        ((12, 96, 512), "96 wide"),
        ((12, 64, 512, "float16"), "float16"),
        ((12, 64, 4096), "VMEM for length 4096"),
        ((12, 64, 1024, "bfloat16", "matrix", "v4"), "a v4 has 16"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(arguments, word):
    assert word in refuses(*arguments)


@pytest.mark.parametrize("chip", ["v4", "v5e", "v5p", "v6e", "tpu7x"])
def test_base_size_is_taken_on_every_chip(chip):
    assert refuses(12, 64, 512, chip=chip) is None


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"table_HxD": np.zeros((2, 47), np.float32)}, "not both"),
        ({"dropout": 0.1}, "needs seed_2"),
        ({"bias_HxLxL": np.zeros((2, 24, 23), np.float32)}, r"\[2, 24, 24\]"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes, word):
    (*words, _, b), segments = case(24, 2, 64, "matrix")
    with pytest.raises(UsageError, match=word):
        biased_attention(*words, segments, **{"bias_HxLxL": b, **changes})
