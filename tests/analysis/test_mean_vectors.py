"""Vectors of texts from every layer: the means they should be, whatever the batches."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.analysis import mean_vectors as module
from posenc_jax.analysis.mean_vectors import Row, mean_vectors, sentence_rows
from posenc_jax.interop.pretrained import layer_names, load_encoder
from posenc_jax.model.encoder import Encoder, all_states
from tests.tiny_workdirs import LENGTH, sentences, write_workdir
from tests.variants import apply

TEXTS = [*sentences(20, 1, 6), *sentences(10, 2, 14), *sentences(4, 3)]


@pytest.fixture(scope="module", params=["post", "pre"])
def encoder(request, tmp_path_factory):
    return load_encoder(write_workdir(tmp_path_factory.mktemp("run") / "run", norm=request.param))


@pytest.fixture(scope="module")
def post(tmp_path_factory):
    return load_encoder(write_workdir(tmp_path_factory.mktemp("run") / "run", norm="post"))


def host(encoder):
    return jax.device_get(encoder.params)


@functools.partial(jax.jit, static_argnums=0)
def states(config, params, tokens):
    return all_states(config, params, tokens, jnp.ones_like(tokens))


def test_vectors_are_the_means_over_a_row_alone_in_every_layer(encoder):
    """Against rows run one by one, as long as they are, without a slot of padding."""
    model, params = encoder.pretrained.model, host(encoder)
    texts = [TEXTS[0], TEXTS[25], TEXTS[-1]]
    inner, cut = sentence_rows(encoder.pretrained, texts)
    whole, _ = sentence_rows(encoder.pretrained, texts, specials=True)
    assert cut == 0 and [row.ids for row in inner] == [row.ids for row in whole]
    vectors_inner, vectors_whole = mean_vectors(encoder, inner), mean_vectors(encoder, whole)
    assert vectors_inner.dtype == np.float32 and vectors_inner.shape == (3, len(layer_names(model)), 32)
    for row, alone_inner, alone_whole in zip(inner, vectors_inner, vectors_whole, strict=True):
        tokens = np.array([row.ids], np.int32)
        assert tokens[0, 0] == encoder.pretrained.tokenizer.cls and tokens[0, -1] == encoder.pretrained.tokenizer.sep
        expected = np.asarray(states(model, params, tokens))[:, 0]
        np.testing.assert_allclose(alone_inner[: model.layers + 1], expected[:, 1:-1].mean(1), rtol=0, atol=1e-5)
        np.testing.assert_allclose(alone_whole[: model.layers + 1], expected.mean(1), rtol=0, atol=1e-5)
        last = np.asarray(apply(Encoder(model), params, tokens, np.ones_like(tokens)))[0]
        np.testing.assert_allclose(alone_inner[-1], last[1:-1].mean(0), rtol=0, atol=1e-5)
        if model.norm == "pre":
            assert abs(alone_inner[-1] - alone_inner[-2]).max() > 0.1


def test_batches_shapes_and_order_change_nothing(post):
    rows, _ = sentence_rows(post.pretrained, TEXTS)
    lengths = {len(row.ids) for row in rows}
    assert min(lengths) <= 16 < 32 < max(lengths)  # all three shapes
    vectors = mean_vectors(post, rows)
    assert np.abs(vectors).mean() > 0.05
    order = np.random.default_rng(0).permutation(len(rows))
    for other in (mean_vectors(post, rows, 128), mean_vectors(post, rows, 1)):
        np.testing.assert_allclose(other, vectors, rtol=0, atol=1e-6)
    mixed = mean_vectors(post, [rows[place] for place in order])
    np.testing.assert_allclose(mixed, vectors[order], rtol=0, atol=1e-6)


def test_a_longer_shape_changes_nothing(post, monkeypatch):
    rows, _ = sentence_rows(post.pretrained, TEXTS[:9])
    vectors = mean_vectors(post, rows)
    monkeypatch.setattr(module, "SHORTEST", LENGTH)
    np.testing.assert_allclose(mean_vectors(post, rows), vectors, rtol=0, atol=1e-6)


def test_as_many_compilations_as_shapes(post):
    rows, _ = sentence_rows(post.pretrained, sentences(400, 5))
    before = module._pooled.program()._cache_size()
    mean_vectors(post, rows, 512)
    assert module._pooled.program()._cache_size() - before <= 3
    mean_vectors(post, rows[::-1][:77], 512)
    assert module._pooled.program()._cache_size() - before <= 3


def test_long_texts_are_cut_and_counted_and_no_text_has_no_direction(post):
    texts = ["the dog sleeps .", " ".join(sentences(1, 4, 40) * 12), ""]
    rows, cut = sentence_rows(post.pretrained, texts)
    assert cut == 1 and len(rows[1].ids) == LENGTH and rows[1].ids[-1] == post.pretrained.tokenizer.sep
    assert rows[2] == Row((post.pretrained.tokenizer.cls, post.pretrained.tokenizer.sep), 1, 1)
    vectors = mean_vectors(post, rows)
    assert np.isfinite(vectors).all() and not vectors[2].any()


def test_bfloat16_states_are_summed_in_float32(post):
    """A large coordinate would swamp the others (positional_artefacts.md 5, trap 17)."""
    model = dataclasses.replace(post.pretrained.model, dtype="bfloat16")
    other = dataclasses.replace(post, pretrained=dataclasses.replace(post.pretrained, model=model))
    rows, _ = sentence_rows(post.pretrained, TEXTS[-2:])
    vectors = mean_vectors(other, rows)
    for row, alone in zip(rows, vectors, strict=True):
        expected = np.asarray(states(model, host(post), np.array([row.ids], np.int32)).astype(jnp.float32))[:, 0, 1:-1]
        np.testing.assert_allclose(alone[0], expected.mean(1)[0], rtol=0, atol=1e-4)
