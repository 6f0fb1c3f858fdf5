"""What training carries from step to step, and how it lies on the mesh."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct
from jax.sharding import Mesh

from posenc_jax.parallel.mesh import check_mesh, param_shardings
from posenc_jax.training.objective import Objective


@struct.dataclass
class TrainState:
    """Updates done so far (int32 scalar), float32 parameters, the optimizer's state."""

    step: jax.Array
    params: Any
    opt_state: Any


def _init(objective: Objective, optimizer: optax.GradientTransformation, key: jax.Array) -> TrainState:
    params = objective.init(key)
    return TrainState(step=jnp.zeros((), jnp.int32), params=params, opt_state=optimizer.init(params))


def abstract_state(objective: Objective, optimizer: optax.GradientTransformation, mesh: Mesh) -> TrainState:
    """Shapes, types and shardings of the state, nothing computed: the target to restore a checkpoint into.

    Raises `UsageError` where a size does not divide into its mesh axis.
    """
    return _traced_state(objective, optimizer, mesh, jax.config.jax_enable_x64)


@functools.lru_cache(maxsize=4)  # tracing takes a while, and a start asks two or three times
def _traced_state(objective: Objective, optimizer: optax.GradientTransformation, mesh: Mesh, x64: bool) -> TrainState:
    """The state under the `x64` that is set, which decides its types."""
    boxed = jax.eval_shape(lambda key: _init(objective, optimizer, key), jax.random.key(0))
    check_mesh(boxed.params, mesh)
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        nn.unbox(boxed),
        param_shardings(boxed, mesh),
    )


@functools.lru_cache(maxsize=4)  # seeds of one task differ in the key alone
def _compiled_init(
    objective: Objective, optimizer: optax.GradientTransformation, mesh: Mesh
) -> Callable[[jax.Array], TrainState]:
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(objective, optimizer, mesh))
    return jax.jit(lambda key: nn.unbox(_init(objective, optimizer, key)), out_shardings=shardings)


def create_state(
    objective: Objective, optimizer: optax.GradientTransformation, mesh: Mesh, seed: int, params: Any = None
) -> TrainState:
    """Fresh state, each leaf made where it will live. `params` replaces subtrees of the fresh parameters:
    {"encoder": tree} starts a fine-tuning from a pre-trained encoder."""
    state = _compiled_init(objective, optimizer, mesh)(jax.random.key(seed))
    return state.replace(params={**state.params, **params}) if params else state


def updates_done(state: TrainState) -> int:
    """Updates that the learning-rate schedule has counted: a step whose update was left out is not among them."""
    schedules = jax.tree.leaves(state.opt_state, is_leaf=lambda node: isinstance(node, optax.ScaleByScheduleState))
    return next(int(node.count) for node in schedules if isinstance(node, optax.ScaleByScheduleState))


def count_parameters(params: Any) -> int:
    """Numbers in a tree of arrays or shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
