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
from tests.training.test_step import make_batch
from tests.variants import small_model


@pytest.mark.parametrize("devices", [1, 4])
def test_an_update_of_a_loss_that_is_not_finite_is_left_out_and_the_next_is_done(devices):
    objective, optimizer = Mlm(small_model("bert_a", vocab_size=72, width=32, heads=4), MlmConfig()), optax.adam(1e-2)
    mesh = make_mesh(MeshConfig(), jax.devices()[:devices])
    state = create_state(objective, optimizer, mesh, seed=0)
    step = make_train_step(objective, optimizer, mesh)
    whole = jax.device_get((state.params, state.opt_state))
    good = put_batch(make_batch(), mesh)
    spoilt = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), state.params)
    state, metrics = step(state.replace(params=spoilt), good)
    assert metrics["skipped"] == 1 and not np.isfinite(metrics["loss"]) and int(state.step) == 1
    assert all(np.isinf(leaf).all() for leaf in jax.tree.leaves(jax.device_get(state.params)))
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(state.opt_state), whole[1])
    params = jax.tree.map(lambda leaf, old: jax.device_put(old, leaf.sharding), state.params, whole[0])
    state, metrics = step(state.replace(params=params), good)
    assert metrics["skipped"] == 0 and int(state.step) == 2
    moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), jax.device_get(state.params), whole[0])
    assert all(jax.tree.leaves(moved))
