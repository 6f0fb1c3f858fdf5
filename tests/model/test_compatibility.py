"""Symmetric and pairwise attention (ddrp_mth_and_symmetric.md 2.1, 2.2, 2.8)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from posenc_jax.config import CompatibilityConfig, ModelConfig
from posenc_jax.model.compatibility import compatibility
from posenc_jax.model.encoder import Encoder
from tests.variants import COMPATIBILITIES, apply, random_params, rows, small_model


class Logits(nn.Module):
    """The content logits [B, H, L, L] of one layer."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BxLxD):
        q, k = compatibility(self.config)(x_BxLxD)
        return jnp.einsum("BQHd,BKHd->BHQK", q, k) * self.config.head_width**-0.5


def words(rng, *shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


def test_symmetric_logits_are_symmetric_and_positive_semidefinite(rng):
    module, x = Logits(small_model("bert_a", "symmetric")), words(rng, 2, 23, 30)
    logits = np.asarray(apply(module, random_params(module, x), x), np.float64)
    np.testing.assert_allclose(logits, logits.swapaxes(-1, -2), atol=1e-5)
    eigenvalues = np.linalg.eigvalsh((logits + logits.swapaxes(-1, -2)) / 2)
    assert eigenvalues.min() > -1e-4 and eigenvalues.max() > 10


@pytest.mark.parametrize("name", ["dot_product", "pairwise", "pairwise_symmetrised", "pairwise_diagonal"])
def test_only_a_symmetric_matrix_gives_symmetric_logits(name, rng):
    module, x = Logits(small_model("bert_a", name)), words(rng, 2, 23, 30)
    logits = apply(module, random_params(module, x), x)
    difference = float(jnp.abs(logits - jnp.swapaxes(logits, -1, -2)).max())
    assert difference < 1e-4 if name.startswith("pairwise_") else difference > 1


def encoders(of, like, rng, mixer="attention"):
    """Parameters of one compatibility, a function from a compatibility and its parameters to the output."""
    tokens, segments = rows(rng)
    params = random_params(Encoder(small_model("learned+ddrp", of, mixer)), tokens, segments)
    return params, lambda name, tree: apply(Encoder(small_model("learned+ddrp", name, mixer)), tree, tokens, segments)


def with_attention(params, **changes):
    layers = params["layers"]
    attention = {name: leaf for name, leaf in {**layers["attention"], **changes}.items() if leaf is not None}
    return {**params, "layers": {**layers, "attention": attention}}


@pytest.mark.parametrize("name", ["pairwise", "pairwise_symmetrised", "pairwise_diagonal"])
def test_pairwise_with_the_identity_is_symmetric(name, rng):
    params, run = encoders("symmetric", name, rng)
    one = jnp.ones((2, 3, 10)) if name == "pairwise_diagonal" else jnp.tile(jnp.eye(10), (2, 3, 1, 1))
    got = run(name, with_attention(params, meeting={"kernel": one}))
    np.testing.assert_allclose(got, run("symmetric", params), atol=1e-6)


@pytest.mark.parametrize("mixer", ["attention", "mixed"])
def test_pairwise_folds_into_a_dot_product(mixer, rng):
    """Key weight W_Q M^T and key bias M b_Q."""
    params, run = encoders("pairwise", "dot_product", rng, mixer)
    query, matrix = params["layers"]["attention"]["query"], params["layers"]["attention"]["meeting"]["kernel"]
    key = {
        "kernel": jnp.einsum("nDHd,nHed->nDHe", query["kernel"], matrix),
        "bias": jnp.einsum("nHed,nHd->nHe", matrix, query["bias"]),
    }
    folded = with_attention(params, meeting=None, key=key)
    np.testing.assert_allclose(run("dot_product", folded), run("pairwise", params), atol=1e-5)


@functools.cache
def first_logits(**settings):
    """[3, 12, 256, 256]: one base layer as it starts, inputs of variance 1, three draws (trap 1)."""
    module = Logits(ModelConfig(compatibility=CompatibilityConfig(**settings)))
    draw = jax.jit(lambda key, x: module.init_with_output(key, x)[0][0])
    keys = jax.random.split(jax.random.key(0), 3)
    return np.stack([draw(key, jax.random.normal(jax.random.fold_in(key, 1), (1, 256, 768))) for key in keys])


@pytest.mark.parametrize(
    ("name", "deviation", "entropy"),
    [("dot_product", 0.31, 5.50), ("symmetric", 0.32, 5.42), ("pairwise", 2.45, 3.23), ("matched", 2.45, 3.23)],
)
def test_first_logits_are_as_peaked_as_the_spec_says(name, deviation, entropy):
    """Deviation off the diagonal and mean entropy over 256 keys; the matched start is to have pairwise's."""
    logits = first_logits(**COMPATIBILITIES[name])
    elsewhere = logits[..., ~np.eye(256, dtype=bool)]
    assert abs(elsewhere.std() / deviation - 1) < 0.1
    weights = np.asarray(jax.nn.softmax(logits))
    assert abs(-(weights * np.log(weights + 1e-30)).sum(-1).mean() - entropy) < 0.1


def test_symmetric_words_meet_themselves_first():
    """Trap 2: |q|^2 / sqrt(d), 2.45 on average, where others average 0."""
    logits = first_logits(name="symmetric")
    assert abs(np.diagonal(logits, axis1=-2, axis2=-1).mean() / 2.45 - 1) < 0.1
    assert abs(logits[..., ~np.eye(256, dtype=bool)].mean()) < 0.05


@pytest.mark.parametrize(
    ("settings", "deviation", "mean"),
    [
        (dict(start="normal"), 1.0, 0.0),
        (dict(start="inverse_width"), 1 / 8, 0.0),
        (dict(start="identity"), 0.02, 1.0),
        (dict(start="normal", form="diagonal"), 1.0, 0.0),
        (dict(start="identity", form="diagonal"), 0.02, 1.0),
    ],
)
def test_the_matrix_starts_where_its_config_says(settings, deviation, mean):
    """Whatever `init_std` is, N(0, 1) is 1 wide (2.1)."""
    module = Logits(ModelConfig(compatibility=CompatibilityConfig(name="pairwise", **settings)))
    init = jax.jit(lambda key: nn.unbox(module.init(key, jnp.zeros((1, 2, 768))))["params"]["meeting"]["kernel"])
    kernel = np.asarray(init(jax.random.key(0)))
    if settings.get("form") == "diagonal":
        assert kernel.shape == (12, 64)
        diagonal = kernel
    else:
        assert kernel.shape == (12, 64, 64)
        diagonal = np.diagonal(kernel, axis1=1, axis2=2)
        assert abs(kernel[:, ~np.eye(64, dtype=bool)].std() / deviation - 1) < 0.05
    assert abs(diagonal.mean() - mean) < 4 * deviation / np.sqrt(diagonal.size)
    assert abs(diagonal.std() / deviation - 1) < 0.1
