import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from scipy.special import log_softmax

from posenc_jax.config import MeshConfig, MlmConfig
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.step import make_eval_step
from tests.oracle import encode_row, mlm_logits
from tests.variants import VARIANTS, float64, small_model


def make(variant="tupe_r", **changes):
    objective = Mlm(small_model(variant, **changes), MlmConfig(rate=0.3))
    shapes = nn.unbox(jax.eval_shape(objective.init, jax.random.key(0)))
    rng = np.random.default_rng(1)
    return objective, jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.3, leaf.shape), jnp.float32), shapes)


def make_batch(rng, rows=4):
    tokens = rng.integers(5, 71, (rows, 23)).astype(np.int32)
    segments = np.ones_like(tokens)
    tokens[1, 15:] = segments[1, 15:] = 0
    return {"tokens": jnp.asarray(tokens), "segments": jnp.asarray(segments), "row": jnp.arange(rows)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_equals_the_float64_oracle(variant, rng):
    objective, params = make(variant)
    examples = jax.jit(objective.prepare)(make_batch(rng), jax.random.key(5))
    sums, metrics = jax.jit(objective.sums, static_argnums=3)(params, examples, jax.random.key(0), False)
    exact, total, right = float64(params), 0.0, 0.0
    for row in range(4):
        hidden = encode_row(
            exact["encoder"],
            objective.model,
            np.asarray(examples["tokens"][row]),
            np.asarray(examples["segments"][row]),
            np.arange(23),
        )
        logits = mlm_logits(exact, objective.model, hidden[examples["predicted"][row]])
        weight, target = np.asarray(examples["predicted_weight"][row]), np.asarray(examples["target"][row])
        total -= (log_softmax(logits, -1)[np.arange(len(target)), target] * weight).sum()
        right += ((logits.argmax(-1) == target) * weight).sum()
    np.testing.assert_allclose(sums["mlm"], total, rtol=2e-5)
    assert float(metrics["accuracy"][0]) == right
    assert float(objective.weights(examples)["mlm"]) == examples["predicted_weight"].sum() > 0


def test_output_matrix_is_the_word_embedding(rng):
    _, params = make()
    assert "words" in params["encoder"] and set(params["head"]) == {"dense", "norm", "bias"}


def test_logits_and_loss_are_float32_under_bfloat16(rng):
    objective, params = make(dtype="bfloat16")
    batch = make_batch(rng)
    logits = jax.eval_shape(objective.network.apply, {"params": params}, batch, jnp.zeros((4, 2), jnp.int32))
    assert logits.dtype == jnp.float32
    examples = jax.jit(objective.prepare)(batch, jax.random.key(0))
    sums = jax.jit(objective.sums, static_argnums=3)(params, examples, jax.random.key(0), False)[0]
    assert sums["mlm"].dtype == jnp.float32 and np.isfinite(sums["mlm"])


def test_a_batch_of_padding_alone_has_loss_zero_and_no_nan(rng):
    objective, params = make()
    batch = jax.tree.map(jnp.zeros_like, make_batch(rng))
    examples = jax.jit(objective.prepare)(batch, jax.random.key(0))
    gradient = jax.jit(jax.grad(lambda p: objective.sums(p, examples, jax.random.key(0), False)[0]["mlm"]))(params)
    assert float(objective.weights(examples)["mlm"]) == 0
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(gradient))


def test_validation_masks_depend_on_the_row_and_not_on_the_batch(rng):
    objective, params = make()
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    look, key, batch = make_eval_step(objective, mesh), jax.random.key(7), make_batch(rng)
    whole = look(params, batch, key)["mlm_loss"]
    halves = [
        look(params, {n: v[part] for n, v in batch.items()}, key)["mlm_loss"] for part in (slice(0, 2), slice(2, 4))
    ]
    np.testing.assert_allclose(whole[0], halves[0][0] + halves[1][0], rtol=1e-6)
    assert whole[1] == halves[0][1] + halves[1][1]
