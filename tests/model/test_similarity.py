"""Cosines between words and between heads, against loops in float64, and where they must not be NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.config import CompatibilityConfig, ModelConfig
from posenc_jax.model.encoder import Encoder
from posenc_jax.model.similarity import HEADS, count_texts, head_cosines, word_cosines
from tests.variants import random_params, small_model

SEGMENTS = np.array([[1, 1, 1, 2, 2, 3, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1], [0] * 8, [1, 0, 0, 0, 0, 0, 0, 0]])
FORMS = ("plain", "squared", "centred")


def mean_cosines(vectors):
    """Of different vectors: mean cosine, mean squared cosine, mean cosine of the centred."""
    out = []
    for centre, power in ((0, 1), (0, 2), (vectors.mean(0), 1)):
        shifted = vectors - centre
        values = [
            (a @ b / np.sqrt((a @ a + 1e-6) * (b @ b + 1e-6))) ** power
            for i, a in enumerate(shifted)
            for j, b in enumerate(shifted)
            if i != j
        ]
        out.append(np.mean(values))
    return np.array(out)


def test_words_equal_the_loop_over_pairs_each_text_by_itself(rng):
    hidden = rng.normal(0.3, 1, (4, 8, 5))
    got = jax.jit(word_cosines)(jnp.float32(hidden), SEGMENTS)
    texts = [hidden[r][SEGMENTS[r] == s] for r in range(4) for s in (1, 2, 3)]
    texts = [text for text in texts if len(text) > 1]
    assert float(count_texts(jnp.array(SEGMENTS))) == len(texts) == 3
    want = sum(mean_cosines(text) for text in texts)
    np.testing.assert_allclose([got[form] for form in FORMS], want, rtol=1e-5)


def test_the_plain_form_is_the_identity_of_the_spec(rng):
    """(||sum u||^2 - m) / (m (m - 1)), ddrp_mth_and_symmetric.md 1.3."""
    hidden = rng.normal(0.5, 1, (1, 8, 16))
    unit = hidden[0] / np.linalg.norm(hidden[0], axis=-1, keepdims=True)
    want = ((unit.sum(0) ** 2).sum() - 8) / (8 * 7)
    got = jax.jit(word_cosines)(jnp.float32(hidden), np.ones((1, 8), int))["plain"]
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_the_centred_form_sees_what_the_plain_one_cannot(rng):
    """Two opposite clusters have a plain cosine near 0; a common offset changes the plain form alone."""
    a = rng.normal(0, 0.05, (1, 8, 16)) + np.where(np.arange(8) % 2, 1.0, -1.0)[None, :, None]
    look = jax.jit(word_cosines)
    ones = np.ones((1, 8), int)
    at_zero, shifted = look(jnp.float32(a), ones), look(jnp.float32(a + 3), ones)
    assert abs(at_zero["plain"] + 1 / 7) < 0.01 and at_zero["squared"] > 0.9
    assert shifted["plain"] > 0.6
    np.testing.assert_allclose(at_zero["centred"], shifted["centred"], rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_zero_vectors_texts_of_one_word_and_padding_give_finite_gradients(form, rng):
    hidden = jnp.float32(rng.normal(0, 1, (4, 8, 5))).at[0, 1].set(0.0).at[1].set(0.0)
    gradient = jax.jit(jax.grad(lambda h: word_cosines(h, SEGMENTS)[form]))(hidden)
    assert np.isfinite(gradient).all()
    assert (np.asarray(gradient)[SEGMENTS == 0] == 0).all()


def test_heads_equal_the_loop_over_pairs_and_padding_queries_do_not_count(rng):
    may_meet = (SEGMENTS[:, :, None] == SEGMENTS[:, None]) & (SEGMENTS[:, None] > 0)
    logits = np.where(may_meet[:, None], rng.normal(0, 2, (4, 3, 8, 8)), -1e30)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    got = jax.jit(head_cosines)(jnp.float32(weights), may_meet, SEGMENTS)
    want, entropy = np.zeros(3), 0.0
    for row, query in zip(*np.nonzero(SEGMENTS), strict=True):
        vectors = weights[row, :, query][:, may_meet[row, query]]
        entropy -= (vectors * np.log(np.maximum(vectors, 1e-300))).sum() / 3
        for place, (centre, power) in enumerate(((0, 1), (0, 2), (1 / vectors.shape[1], 1))):
            shifted = vectors - centre
            norms = np.sqrt((shifted**2).sum(-1) + 1e-8)
            cosines = (shifted @ shifted.T / np.outer(norms, norms)) ** power
            want[place] += (cosines.sum() - np.trace(cosines)) / 6
    np.testing.assert_allclose([got[form] for form in FORMS], want, rtol=1e-4)
    np.testing.assert_allclose(got["entropy"], entropy, rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_uniform_attention_and_single_keys_give_finite_gradients(form):
    segments = np.array([[1, 0, 0, 0], [1, 1, 1, 2]])
    may_meet = (segments[:, :, None] == segments[:, None]) & (segments[:, None] > 0)

    def total(logits):
        weights = jax.nn.softmax(jnp.where(may_meet[:, None], logits, -1e30))
        return head_cosines(weights, may_meet, segments)[form]

    assert np.isfinite(jax.jit(jax.grad(total))(jnp.zeros((2, 2, 4, 4)))).all()


@pytest.mark.parametrize(("name", "cosine", "entropy"), [("dot_product", 0.91, 5.498), ("pairwise", 0.048, 3.23)])
def test_fresh_base_layers_start_where_the_spec_measured(name, cosine, entropy):
    """ddrp_mth_and_symmetric.md 1.5: heads of BERT-base start 0.91 alike, of pairwise attention 0.048."""
    model = ModelConfig(layers=1, vocab_size=1000, compatibility=CompatibilityConfig(name=name), norm_eps=1e-12)
    tokens = jax.random.permutation(jax.random.key(0), 256)[None] + 5
    ones = jnp.ones_like(tokens)

    @jax.jit
    def look(key):
        params = Encoder(model).init(key, tokens, ones)["params"]
        return Encoder(model).apply({"params": params}, tokens, ones, mutable=HEADS)[1]

    left = look(jax.random.key(1))[HEADS]["layers"]["attention"]
    np.testing.assert_allclose(left["plain"][0][0] / 256, cosine, atol=0.012)
    np.testing.assert_allclose(left["entropy"][0][0] / 256, entropy, atol=0.05)


def test_nothing_is_measured_or_kept_unless_asked():
    encoder, tokens = Encoder(small_model("bert_a")), jnp.ones((2, 8), jnp.int32)
    assert set(jax.eval_shape(encoder.init, jax.random.key(0), tokens, tokens)) == {"params"}
    params = random_params(encoder, tokens, tokens)

    def program(**options):
        return str(jax.make_jaxpr(lambda p: encoder.apply({"params": p}, tokens, tokens, **options))(params))

    assert program(mutable=HEADS).count(" log ") > program().count(" log ")  # the entropy's
