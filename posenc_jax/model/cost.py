"""What a model costs, counted and not timed: parameters, and floating-point operations of a forward pass."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.extend import core

from posenc_jax.config import ModelConfig
from posenc_jax.model.encoder import Encoder

_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "argmax", "cumsum")
_MOVES = frozenset(
    "reshape transpose broadcast_in_dim convert_element_type slice dynamic_slice pad concatenate gather squeeze rev "
    "select_n copy iota split stop_gradient bitcast_convert_type".split()
)
"""Operations that move numbers and make none."""


def encoder_parameters(config: ModelConfig) -> int:
    """Numbers in an encoder with its embeddings, without a head."""
    return sum(leaf.size for leaf in jax.tree.leaves(_shapes(config, 8)["params"]))


def encoder_flops(config: ModelConfig, length: int) -> int:
    """Floating-point operations of an encoder's forward pass over one row of `length` words.

    Counted over the program as it is traced: 2 M N K for a product of matrices, 1 a number for every other operation
    that makes one, a reduction by what it reads; looking up a table is free. Backward passes are not in it. Kernels
    of our own do the same work, so XLA's program is counted on every machine.
    """
    config = dataclasses.replace(config, kernels="xla")
    variables = _shapes(config, length)
    row = jax.ShapeDtypeStruct((1, length), jnp.int32)
    return count_flops(Encoder(config).apply, variables, row, row)


def count_flops(function: Callable, *args: Any) -> int:
    """Floating-point operations of `function` at these arguments, which may be shapes alone."""
    return _flops(jax.make_jaxpr(function)(*args).jaxpr)


def _shapes(config: ModelConfig, length: int) -> Any:
    row = jax.ShapeDtypeStruct((1, length), jnp.int32)
    return nn.unbox(jax.eval_shape(Encoder(config).init, jax.random.key(0), row, row))


def _flops(jaxpr: core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        inner = list(_inner(equation))
        total += times * sum(map(_flops, inner)) if inner else _own_flops(equation)
    return total


def _inner(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """The programs that an operation runs: a scan's body, a jitted or differentiable function's."""
    if equation.primitive.name == "custom_vjp_call":  # its backward functions are among the parameters, too
        yield equation.params["call_jaxpr"].jaxpr
        return
    for value in equation.params.values():
        if isinstance(value, core.ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, core.Jaxpr):
            yield value


def _own_flops(equation: core.JaxprEqn) -> int:
    name, out = equation.primitive.name, equation.outvars[0].aval
    if not jnp.issubdtype(out.dtype, jnp.floating) or name in _MOVES:
        return 0
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return 2 * out.size * math.prod(shape[axis] for axis in contracted)
    return equation.invars[0].aval.size if name in _REDUCTIONS else out.size
