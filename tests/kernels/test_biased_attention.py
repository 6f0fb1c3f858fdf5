"""The attention kernel in interpret mode against its definition in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.kernels.biased_attention import biased_attention
from tests.kernels import attention_oracle as oracle

SEED = np.array([0x9E3779B9, 5], np.uint32)
KEPT = 230  # dropout of 0.1, to the nearest 1/256


def segments_of(length):
    """Words only; padding on the right; on the left; three packed texts, one of a single word, and padding; no word."""
    segments = np.ones((5, length), np.int32)
    segments[1, -length // 3 :] = 0
    segments[2, : length // 4] = 0
    segments[3] = np.repeat([1, 2, 3, 0], [length // 3, 1, length // 2, length - length // 3 - length // 2 - 1])
    segments[4] = 0
    return segments


def case(length, heads, width, bias, rows=5, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    q, k, v, g = (rng.normal(size=(rows, length, heads, width)) for _ in range(4))
    q *= width**-0.5
    shapes = {"matrix": (heads, length, length), "table": (heads, 2 * length - 1), "none": None}
    b = None if bias == "none" else rng.normal(size=shapes[bias])
    words = [np.asarray(jnp.asarray(x, dtype)) for x in (q, k, v, g)]
    return [*words, None if b is None else b.astype(np.float32)], segments_of(length)[-rows:]


def kernel(arrays, segments, bias, **options):
    """The output and all gradients."""
    *words, g, b = arrays

    def out(q, k, v, b):
        given = {"table_HxD": b} if bias == "table" else {"bias_HxLxL": b}
        return biased_attention(q, k, v, segments, interpret=True, **given, **options)

    value, pull = jax.vjp(out, *words, b)
    return value, *pull(g)


def exact(arrays, segments, bias, factors=None):
    q, k, v, g, b = (None if x is None else np.asarray(x, np.float64) for x in arrays)
    b = oracle.matrix_of(b, q.shape[1]) if bias == "table" else b
    *found, g_b = oracle.attention(q, k, v, g, segments, b, factors)
    return *found, oracle.table_of(g_b) if bias == "table" else g_b


def error(found, want):
    return np.abs(np.asarray(found, np.float64) - want).max() / np.abs(want).max()
