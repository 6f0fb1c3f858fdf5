import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posenc_jax.config import MeshConfig, MlmConfig
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.parallel.mesh import make_mesh, put_batch
from posenc_jax.training.state import create_state
from posenc_jax.training.step import make_train_step
from tests.variants import small_model

SGD = optax.sgd(1.0)  # parameters after a step show the gradient itself


def make_batch(rows=16, length=23):
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, 71, (rows, length)).astype(np.int32)
    segments = np.ones_like(tokens)
    for row in range(rows):  # uneven numbers of words: means of means would differ
        tokens[row, length - row :] = segments[row, length - row :] = 0
    return {"tokens": tokens, "segments": segments, "row": np.arange(rows, dtype=np.int32)}


@functools.cache
def one_step(accumulate=1):
    objective = Mlm(
        small_model("tupe_r", vocab_size=72, width=32, heads=4, dropout=0.0, attention_dropout=0.0),
        MlmConfig(rate=0.3),
    )
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    state = create_state(objective, SGD, mesh, seed=0)
    before = jax.device_get(state.params)
    state, metrics = make_train_step(objective, SGD, mesh, accumulate=accumulate)(state, put_batch(make_batch(), mesh))
    return before, jax.device_get(state.params), jax.device_get(metrics), state


def assert_same(one, other, atol):
    for a, b in zip(one[:2], other[:2], strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), a, b)
    np.testing.assert_allclose(one[2]["loss"], other[2]["loss"], rtol=1e-6)
    np.testing.assert_allclose(one[2]["accuracy"], other[2]["accuracy"], atol=1e-7)


@pytest.mark.parametrize("accumulate", [2, 4])
def test_accumulation_gives_the_gradient_of_the_whole_batch(accumulate):
    assert_same(one_step(), one_step(accumulate=accumulate), atol=1e-6)


def test_the_step_really_moves_every_parameter():
    before, after, metrics, state = one_step()
    assert int(state.step) == 1 and metrics["grad_norm"] > 0
    still = [
        jax.tree_util.keystr(path)
        for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
        if np.array_equal(a, b)
    ]
    assert still == []


def test_dropout_and_masks_are_a_function_of_seed_and_step():
    objective = Mlm(small_model("bert_a"), MlmConfig())
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    batch = put_batch(make_batch(), mesh)
    losses = {}
    for seed in (0, 1):
        step = make_train_step(objective, optax.sgd(0.0), mesh, seed=seed)
        for _ in range(2):
            state = create_state(objective, optax.sgd(0.0), mesh, seed=0)
            for number in range(2):
                state, metrics = step(state, batch)
                losses.setdefault((seed, number), set()).add(float(metrics["loss"]))
    assert all(len(found) == 1 for found in losses.values())
    assert len(set.union(*losses.values())) == 4


def test_one_compilation_serves_all_steps():
    objective = Mlm(small_model("bert_a"), MlmConfig())
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    state = create_state(objective, SGD, mesh, seed=0)
    step = make_train_step(objective, SGD, mesh)
    for _ in range(5):
        state, _ = step(state, put_batch(make_batch(), mesh))
    assert step._cache_size() == 1


def test_many_small_updates_move_float32_weights_under_bfloat16():
    """In bfloat16 itself they would all round away."""
    objective = Mlm(small_model("bert_a", dtype="bfloat16"), MlmConfig(rate=0.3))
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    optimizer = optax.sgd(1e-5)
    state = create_state(objective, optimizer, mesh, seed=0)
    before = jax.device_get(state.params["encoder"]["layers"]["feed_forward"]["inner"]["kernel"])
    step = make_train_step(objective, optimizer, mesh)
    for _ in range(30):
        state, _ = step(state, put_batch(make_batch(), mesh))
    after = jax.device_get(state.params["encoder"]["layers"]["feed_forward"]["inner"]["kernel"])
    assert (before != after).mean() > 0.5
    assert (jnp.bfloat16(before) == jnp.bfloat16(after)).mean() > 0.9
