"""Cosines of texts in every layer: those of their vectors, raw and changed, whatever the chunks."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.analysis.mean_vectors import mean_vectors, sentence_rows
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.similarity import vectors as similarity
from posenc_jax.evaluation.similarity.vectors import choose_layers, cosine, cosines
from posenc_jax.interop.pretrained import load_encoder
from posenc_jax.model.encoder import all_states
from tests.tiny_workdirs import sentences, write_workdir

TEXTS = [*sentences(20, 1, 6), *sentences(10, 2, 14), *sentences(4, 3)]


@pytest.fixture(scope="module")
def post(tmp_path_factory):
    return load_encoder(write_workdir(tmp_path_factory.mktemp("run") / "run", norm="post"))


def host(encoder):
    return jax.device_get(encoder.params)


@functools.partial(jax.jit, static_argnums=0)
def states(config, params, tokens):
    return all_states(config, params, tokens, jnp.ones_like(tokens))


def test_chunks_change_no_cosine_and_repeated_texts_are_encoded_once(post, monkeypatch):
    rows, _ = sentence_rows(post.pretrained, TEXTS)
    a, b = rows, rows[::-1]
    (whole,) = cosines(post, a, b)
    encoded = []

    def counting(encoder, chosen, *rest):
        encoded.append(len(chosen))
        return mean_vectors(encoder, chosen, *rest)

    monkeypatch.setattr(similarity, "mean_vectors", counting)
    np.testing.assert_allclose(cosines(post, a, b, chunk=7)[0], whole, rtol=0, atol=1e-6)
    assert cosines(post, a, b, layers=[2]).shape == (1, len(TEXTS), 1)
    assert encoded[-1] == len(set(rows)) <= len(TEXTS)


def test_cosines_are_those_of_the_vectors(post):
    rows, _ = sentence_rows(post.pretrained, TEXTS[:8])
    vectors = mean_vectors(post, rows).astype(np.float64)
    (found,) = cosines(post, rows[:4], rows[4:])
    for n in range(4):
        for e in range(3):
            a, b = vectors[n, e], vectors[n + 4, e]
            assert found[n, e] == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)), abs=1e-6)
    assert (cosines(post, rows, rows) == 1).all()


def test_a_transform_stands_between_vectors_and_cosines(post):
    """Zeroing coordinates (clipping) before or after the mean over slots is the same."""
    rows, _ = sentence_rows(post.pretrained, TEXTS[:6])
    keep_D = np.arange(32) != 5
    raw, clipped = cosines(post, rows[:3], rows[3:], transforms=(None, lambda vectors_ExNxD: vectors_ExNxD * keep_D))
    np.testing.assert_array_equal(raw, cosines(post, rows[:3], rows[3:])[0])
    model, params = post.pretrained.model, host(post)
    means = []
    for row in rows:
        kept = np.asarray(states(model, params, np.array([row.ids], np.int32)), np.float64)[:, 0, 1:-1] * keep_D
        means.append(kept.mean(1))
    for e in range(3):
        expected = cosine(np.stack(means[:3])[:, e], np.stack(means[3:])[:, e])
        np.testing.assert_allclose(clipped[:, e], expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="transform"):
        cosines(post, rows[:3], rows[3:], transforms=[lambda vectors_ExNxD: vectors_ExNxD[..., :5]])


def test_a_text_without_words_has_no_direction(post):
    rows, _ = sentence_rows(post.pretrained, ["the dog sleeps .", ""])
    assert (cosines(post, rows[:1], rows[1:]) == 0).all()


def test_cosine_of_parallel_vectors_is_one_for_all(rng):
    """Rounding noise would otherwise rank the pairs."""
    a = rng.normal(size=(100, 24))
    assert set(cosine(a, 3 * a)) == {1.0}
    assert set(cosine(a, -a.astype(np.float32))) == {-1.0}
    assert set(cosine(a, np.zeros_like(a))) == {0.0}


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
