"""Vectors of texts from every layer: the means they should be, whatever the batches."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.similarity import vectors as similarity
from posenc_jax.evaluation.similarity.vectors import (
    Row,
    choose_layers,
    cosine,
    cosines,
    mean_vectors,
    sentence_rows,
)
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
    monkeypatch.setattr(similarity, "SHORTEST", LENGTH)
    np.testing.assert_allclose(mean_vectors(post, rows), vectors, rtol=0, atol=1e-6)


def test_as_many_compilations_as_shapes(post):
    rows, _ = sentence_rows(post.pretrained, sentences(400, 5))
    before = similarity._pooled._cache_size()
    mean_vectors(post, rows, 512)
    assert similarity._pooled._cache_size() - before <= 3
    mean_vectors(post, rows[::-1][:77], 512)
    assert similarity._pooled._cache_size() - before <= 3


def test_chunks_change_no_cosine_and_repeated_texts_are_encoded_once(post, monkeypatch):
    rows, _ = sentence_rows(post.pretrained, TEXTS)
    a, b = rows, rows[::-1]
    whole = cosines(post, a, b)
    encoded = []

    def counting(encoder, chosen, *rest):
        encoded.append(len(chosen))
        return mean_vectors(encoder, chosen, *rest)

    monkeypatch.setattr(similarity, "mean_vectors", counting)
    np.testing.assert_allclose(cosines(post, a, b, chunk=7), whole, rtol=0, atol=1e-6)
    assert cosines(post, a, b, layers=[2]).shape == (len(TEXTS), 1)
    assert encoded[-1] == len(set(rows)) <= len(TEXTS)


def test_cosines_are_those_of_the_vectors(post):
    rows, _ = sentence_rows(post.pretrained, TEXTS[:8])
    vectors = mean_vectors(post, rows).astype(np.float64)
    found = cosines(post, rows[:4], rows[4:])
    for n in range(4):
        for e in range(3):
            a, b = vectors[n, e], vectors[n + 4, e]
            assert found[n, e] == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)), abs=1e-6)
    assert (cosines(post, rows, rows) == 1).all()


def test_a_transform_stands_between_vectors_and_cosines(post):
    """Zeroing coordinates (clipping) before or after the mean over slots is the same."""
    rows, _ = sentence_rows(post.pretrained, TEXTS[:6])
    keep_D = np.arange(32) != 5
    clipped = cosines(post, rows[:3], rows[3:], transform=lambda vectors_NxExD: vectors_NxExD * keep_D)
    model, params = post.pretrained.model, host(post)
    means = []
    for row in rows:
        kept = np.asarray(states(model, params, np.array([row.ids], np.int32)), np.float64)[:, 0, 1:-1] * keep_D
        means.append(kept.mean(1))
    for e in range(3):
        expected = cosine(np.stack(means[:3])[:, e], np.stack(means[3:])[:, e])
        np.testing.assert_allclose(clipped[:, e], expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="transform"):
        cosines(post, rows[:3], rows[3:], transform=lambda vectors_NxExD: vectors_NxExD[..., :5])


def test_long_texts_are_cut_and_counted_and_no_text_has_no_direction(post):
    texts = ["the dog sleeps .", " ".join(sentences(1, 4, 40) * 12), ""]
    rows, cut = sentence_rows(post.pretrained, texts)
    assert cut == 1 and len(rows[1].ids) == LENGTH and rows[1].ids[-1] == post.pretrained.tokenizer.sep
    assert rows[2] == Row((post.pretrained.tokenizer.cls, post.pretrained.tokenizer.sep), 1, 1)
    vectors = mean_vectors(post, rows)
    assert np.isfinite(vectors).all() and not vectors[2].any()
    assert (cosines(post, rows[:1], rows[2:]) == 0).all()


def test_cosine_of_parallel_vectors_is_one_for_all(rng):
    """Rounding noise would otherwise rank the pairs."""
    a = rng.normal(size=(100, 24))
    assert set(cosine(a, 3 * a)) == {1.0}
    assert set(cosine(a, -a.astype(np.float32))) == {-1.0}
    assert set(cosine(a, np.zeros_like(a))) == {0.0}


def test_bfloat16_states_are_summed_in_float32(post):
    """A large coordinate would swamp the others (positional_artefacts.md 5, trap 17)."""
    model = dataclasses.replace(post.pretrained.model, dtype="bfloat16")
    other = dataclasses.replace(post, pretrained=dataclasses.replace(post.pretrained, model=model))
    rows, _ = sentence_rows(post.pretrained, TEXTS[-2:])
    vectors = mean_vectors(other, rows)
    for row, alone in zip(rows, vectors, strict=True):
        expected = np.asarray(states(model, host(post), np.array([row.ids], np.int32)).astype(jnp.float32))[:, 0, 1:-1]
        np.testing.assert_allclose(alone[0], expected.mean(1)[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "norm, wanted, places",
    [("pre", "all", [0, 1, 2, 3]), ("pre", "last", [3]), ("post", "last", [2]), ("post", "0", [0])],
)
def test_layers_are_chosen_by_name(post, norm, wanted, places):
    assert choose_layers(dataclasses.replace(post.pretrained.model, norm=norm), wanted) == places


@pytest.mark.parametrize("wanted", ["3", "-1", "first", "1.0"])
def test_a_layer_that_is_not_there_is_refused(post, wanted):
    with pytest.raises(UsageError, match="0 to 2"):
        choose_layers(post.pretrained.model, wanted)


def test_a_folder_that_is_no_workdir_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"config\.json"):
        load_encoder(tmp_path)
