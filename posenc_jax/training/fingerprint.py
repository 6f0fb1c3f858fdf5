"""What tells a tree of arrays from another: names, types, shapes, and a sum over the bits of each."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def described(tree: Any) -> dict[str, str]:
    """Name -> type and shape ("encoder/words": "float32[64, 16]") of arrays, or of what has their shape and dtype."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in _named(tree)}


def bit_sums(tree: Any) -> dict[str, int]:
    """Name -> a number, the same on every mesh, that one flipped bit changes for certain. Several processes call it
    together. NumPy's arrays stay in the host's memory."""
    named = _named(tree)
    on_device = {name: leaf for name, leaf in named if isinstance(leaf, jax.Array)}
    totals = jax.device_get(_sum_all(on_device))
    return {name: int(totals[name]) if name in totals else _bit_sum_numpy(np.asarray(leaf)) for name, leaf in named}


def differences(there: Mapping[str, str], wanted: Mapping[str, str], shown: int = 4) -> list[str]:
    """What a checkpoint with the arrays `there` has otherwise than `wanted`: a line each, the first of them."""
    lines = [
        f"{name}: the checkpoint has {there.get(name, 'none')}, the config wants {wanted.get(name, 'none')}"
        for name in sorted(there.keys() | wanted.keys(), key=lambda name: (name.startswith("opt_state"), name))
        if there.get(name) != wanted.get(name)
    ]
    return lines[:shown] + ([f"and {len(lines) - shown} more"] if len(lines) > shown else [])


def _named(tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


@jax.jit
def _sum_all(leaves: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {name: _bit_sum(leaf) for name, leaf in leaves.items()}


def _bit_sum(x: jax.Array) -> jax.Array:
    """Sum of the words of `x`, each times an odd number that its place decides, modulo 2^32: the order of summation
    does not matter, and an odd factor loses no bit."""
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    word = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
    words = jax.lax.bitcast_convert_type(x, word).astype(jnp.uint32)  # 64 bits become two words on a last axis
    place, stride = jnp.zeros((), jnp.uint32), 2
    for axis in reversed(range(words.ndim)):
        shape = tuple(words.shape[axis] if other == axis else 1 for other in range(words.ndim))
        iota = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        place = place.reshape((1,) * words.ndim if place.ndim == 0 else place.shape) + iota * jnp.uint32(stride % 2**32)
        stride *= words.shape[axis]
    return (words * (place + jnp.uint32(1))).sum(dtype=jnp.uint32)


def _bit_sum_numpy(x: np.ndarray, at_once: int = 2**24) -> int:
    """The same sum, which keeps what JAX without x64 would cut: a float64."""
    words, total = x.ravel().view({1: np.uint8, 2: np.uint16}.get(x.dtype.itemsize, np.uint32)), 0
    for start in range(0, words.size, at_once):
        part = words[start : start + at_once].astype(np.uint32)
        factors = 2 * np.arange(start, start + part.size, dtype=np.uint64) + 1
        total += int((part * factors.astype(np.uint32)).sum(dtype=np.uint32))
    return total % 2**32
