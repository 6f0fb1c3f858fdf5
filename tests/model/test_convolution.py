"""ConvBERT's mixed layers: golden values, what leaks, grouped maps (convbert_and_electra.md 1.3, 1.4, 6.5)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.config import ConvolutionConfig, ModelConfig, PositionConfig
from posenc_jax.model.convolution import windowed_sum, within_documents
from posenc_jax.model.encoder import Encoder
from posenc_jax.model.feed_forward import FeedForward
from tests.variants import apply, random_params, rows, small_model

CFG1 = dict(
    layers=2, width=16, heads=4, feed_forward_width=32, feed_forward_groups=2, vocab_size=11, embedding_width=8,
    token_types=2, positions=PositionConfig(max_length=12), norm_eps=1e-12, dtype="float64", mixer="mixed",
)  # fmt: skip
CFG2 = {**CFG1, "layers": 1, "embedding_width": 16, "feed_forward_groups": 1}


def published_tensors(config: ModelConfig):
    """The published names in order, each with its published shape and place in our tree (7.1): tensor number j is
    0.2 sin(0.7 (i + 1) + 1.3 j), plus 1 for gains of norms."""
    d, e, hidden, heads = config.width, config.embedding_width, config.feed_forward_width, config.attention_heads
    a, k, g = heads * config.head_width, config.convolution.width, config.feed_forward_groups
    tables = {"word": ("words",), "token_type": ("types",), "position": ("positions", "learned", "table")}
    sizes = {"word": config.vocab_size, "token_type": config.token_types, "position": config.positions.max_length}
    found = {f"embeddings.{name}_embeddings.weight": (tables[name], (sizes[name], e), None) for name in tables}

    def put(name, path, weight, move, bias=None):
        found[f"{name}.weight"] = ((*path, "kernel"), weight, move)
        found[f"{name}.bias"] = ((*path, "bias"), bias or weight[:1], None)

    def norm(name, path, width):
        found[f"{name}.weight"], found[f"{name}.bias"] = (
            ((*path, "scale"), (width,), None),
            ((*path, "bias"), (width,), None),
        )

    norm("embeddings.LayerNorm", ("norm",), e)
    if d != e:
        put("embeddings_project", ("widen",), (d, e), np.transpose)
    for n in range(config.layers):
        layer, ours = f"encoder.layer.{n}.", ("layers", n)
        inside, mix = f"{layer}attention.self.", (*ours, "attention")
        convolution = (*mix, "convolution")
        for name in ("query", "key", "value"):
            put(inside + name, (*mix, name), (a, d), np.transpose)
        put(inside + "conv_out_layer", (*convolution, "value"), (a, d), np.transpose)
        put(inside + "conv_kernel_layer", (*convolution, "window"), (heads * k, a), np.transpose)
        filtered = inside + "key_conv_attn_layer."
        found[filtered + "depthwise.weight"] = ((*convolution, "key", "depthwise"), (d, 1, k), lambda x: x[:, 0].T)
        found[filtered + "pointwise.weight"] = (
            (*convolution, "key", "pointwise", "kernel"), (a, d, 1), lambda x: x[..., 0].T,
        )  # fmt: skip
        found[filtered + "bias"] = ((*convolution, "key", "pointwise", "bias"), (a, 1), None)
        put(layer + "attention.output.dense", (*mix, "output"), (d, 2 * a), np.transpose)
        norm(layer + "attention.output.LayerNorm", (*ours, "attention_norm"), d)
        for name, path, i, o in (("intermediate", "inner", d, hidden), ("output", "outer", hidden, d)):
            weight, move = ((o, i), np.transpose) if g == 1 else ((g, i // g, o // g), None)
            put(f"{layer}{name}.dense", (*ours, "feed_forward", path), weight, move, (o,))
        norm(layer + "output.LayerNorm", (*ours, "feed_forward_norm"), d)
    return found


def golden_params(config: ModelConfig, keys: int):
    found, arguments = published_tensors(config), np.ones((1, 3), np.int32)
    assert len(found) == keys
    shapes = random_params(Encoder(config), arguments, arguments)
    params = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan), shapes)
    for j, name in enumerate(sorted(found)):
        path, shape, move = found[name]
        values = 0.2 * np.sin(0.7 * (np.arange(np.prod(shape)) + 1) + 1.3 * j) + name.endswith("LayerNorm.weight")
        values = values.reshape(shape)
        node = params
        for step in path[:-1]:
            node = node if isinstance(step, int) else node[step]
        layer = path[1] if path[0] == "layers" else slice(None)
        node[path[-1]][layer] = (values if move is None else move(values)).reshape(node[path[-1]][layer].shape)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    return params


def golden_output(settings, keys, mask, *arguments):
    config = ModelConfig(**settings, convolution=ConvolutionConfig(width=3 if keys == 53 else 9, mask=mask))
    arguments = [np.asarray(argument, np.int32) for argument in arguments]
    with jax.enable_x64(True):
        tokens, segments, types = arguments
        return np.asarray(apply(Encoder(config), golden_params(config, keys), tokens, segments, None, types))


IDS = [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 0, 0]]
SEGMENTS = [[1] * 6, [1, 1, 1, 1, 0, 0]]
TYPES = [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]]
ROW_0 = {
    0: [-0.5591392126, -0.5202508679, -0.4063268789, -0.4837251434],
    5: [0.0069878824, 1.2670763172, 1.3869361622, 0.3392854287],
}


def test_the_leaking_form_equals_the_published_values():
    got = golden_output(CFG1, 53, False, IDS, SEGMENTS, TYPES)
    for at, want in ROW_0.items():
        np.testing.assert_allclose(got[0, at, :4], want, atol=1e-9)
    np.testing.assert_allclose(got[1, 0, :4], [0.3376272705, 0.2043365991, 0.0865363178, -0.5569887554], atol=1e-9)
    np.testing.assert_allclose(got[1, 3, :4], [-0.971626769, -0.7811014987, -0.6046515365, -0.2230563507], atol=1e-9)
    np.testing.assert_allclose([got.sum(), np.abs(got).sum()], [6.427673914249139, 159.29671392535704], rtol=1e-12)


@pytest.mark.parametrize("padded", [True, False])
def test_the_exact_form_equals_the_published_values_without_padding(padded):
    rows = slice(0, 2) if padded else slice(1, 2)
    words = slice(0, 6 if padded else 4)
    got = golden_output(CFG1, 53, True, *(np.asarray(a)[rows, words] for a in (IDS, SEGMENTS, TYPES)))
    if padded:
        for at, want in ROW_0.items():
            np.testing.assert_allclose(got[0, at, :4], want, atol=1e-9)
    np.testing.assert_allclose(got[-1, 0, :4], [0.3376224299, 0.2043526188, 0.0865565935, -0.556982196], atol=1e-9)
    np.testing.assert_allclose(got[-1, 3, :4], [-0.9921511895, -0.7643774076, -0.5580660684, -0.1905380631], atol=1e-9)


@pytest.mark.parametrize("mask", [True, False])
def test_a_row_shorter_than_the_window_equals_the_published_values(mask):
    got = golden_output(CFG2, 28, mask, [[1, 2, 3]], [[1, 1, 1]], [[0, 0, 0]])[0]
    np.testing.assert_allclose(got[0, :4], [-1.1507118459, -1.646657096, -0.5918308247, 0.0231275519], atol=1e-9)
    np.testing.assert_allclose(got[2, :4], [1.2371843942, 0.9106483705, 2.0228733642, -0.5004535619], atol=1e-9)
    np.testing.assert_allclose(got.sum(), 0.8820884363332273, rtol=1e-12)


@pytest.mark.parametrize("kind", ["span_dynamic", "dynamic", "light", "separable"])
def test_the_leaking_form_differs_where_something_stands_beyond_the_document_and_only_there(kind, rng):
    """One layer, so that a leak goes no farther than the window's two words."""
    tokens, segments = rows(rng, batch=4)
    segments = segments.at[1, 15:].set(0).at[2, :4].set(0).at[3, 9:].set(2)
    model = {mask: small_model("none", "dot_product", "mixed", layers=1) for mask in (True, False)}
    outputs = {}
    for mask, config in model.items():
        convolution = ConvolutionConfig(kind=kind, width=5, mask=mask)
        encoder = Encoder(ModelConfig(**{**vars(config), "convolution": convolution}))
        outputs[mask] = np.asarray(apply(encoder, random_params(encoder, tokens, segments), tokens, segments))
    differs = np.abs(outputs[True] - outputs[False]).max(-1) > 1e-4
    reached = np.zeros((4, 23), bool)
    reached[1, 13:15] = reached[2, 4:6] = reached[3, 7:11] = True
    real = np.asarray(segments) > 0
    np.testing.assert_array_equal(differs[real], reached[real])


def test_a_grouped_map_is_a_block_diagonal_one(rng):
    x = jnp.asarray(rng.normal(size=(2, 5, 30)), jnp.float32)
    grouped, dense = (FeedForward(small_model("none", feed_forward_groups=groups)) for groups in (5, 1))
    params = random_params(grouped, x)

    def blocks(tree):
        kernel = np.asarray(tree["kernel"])
        whole = np.zeros((kernel.shape[1] * 5, kernel.shape[2] * 5), np.float32)
        for g, block in enumerate(kernel):
            whole[g * block.shape[0] :][: block.shape[0], g * block.shape[1] :][:, : block.shape[1]] = block
        return {"kernel": jnp.asarray(whole), "bias": tree["bias"]}

    as_dense = {name: blocks(tree) for name, tree in params.items()}
    np.testing.assert_allclose(apply(grouped, params, x), apply(dense, as_dense, x), atol=1e-5)


# ---- windowed sums ------------------------------------------------------------------------------------------------


def windowed(x, window, reaches, g):
    """The sum and what `g` makes of x and the window, term by term in float64."""
    slots, length = window.shape[-1], x.shape[1]
    spread = np.broadcast_to(window, (*x.shape, slots))
    total, g_x, g_window = np.zeros(x.shape), np.zeros(x.shape), np.zeros(spread.shape)
    for row, place, slot in np.ndindex(len(x), length, slots):
        seen = place + slot - slots // 2
        if 0 <= seen < length and (reaches is None or reaches[slot][row, place]):
            weight = spread[row, place, ..., slot]
            total[row, place] += weight * x[row, seen]
            g_x[row, seen] += weight * g[row, place]
            g_window[row, place, ..., slot] = x[row, seen] * g[row, place]
    shared = tuple(axis for axis, size in enumerate(window.shape) if size == 1 < spread.shape[axis])
    return total, g_x, g_window.sum(shared, keepdims=True)


WINDOWS = {"a filter for all places": (1, 1, 2, 4), "a window for each place and head": (3, 7, 2, 1)}


@pytest.mark.parametrize("slots", [1, 3, 9, 17])
@pytest.mark.parametrize("shape", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("masked", [True, False])
def test_windowed_sums_and_their_written_gradients_equal_float64(slots, shape, masked, rng):
    """Windows wider than the rows are among them."""
    x, g, window = rng.normal(size=(3, 7, 2, 4)), rng.normal(size=(3, 7, 2, 4)), rng.normal(size=(*shape, slots))
    segments = np.array([[1, 1, 1, 2, 2, 2, 0], [1, 2, 3, 3, 3, 3, 3], [0] * 7], np.int32)
    reaches = within_documents(jnp.asarray(segments), slots) if masked else None
    got, pull = jax.vjp(lambda x, window: windowed_sum(x, window, reaches), jnp.float32(x), jnp.float32(window))
    total, *slopes = windowed(x, window, reaches, g)
    for one, other in zip((got, *pull(jnp.float32(g))), (total, *slopes), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_windowed_sum_keeps_its_arguments_alone_for_the_backward_pass(rng):
    """Autodiff keeps x moved and masked for each slot: 2.8 GiB of a v5e's memory at base size, 32 rows of 512."""
    x, window = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((2, 16, 8), (1, 1, 8, 9)))
    reaches = within_documents(jnp.ones((2, 16), jnp.int32), 9)
    _, pull = jax.vjp(lambda x, window: windowed_sum(x, window, reaches), x, window)
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(pull))
    assert 0 < kept <= sum(leaf.nbytes for leaf in (x, window, *reaches))
