"""Attention with a shared bias, its gradients and its dropout in NumPy, written from the definitions alone."""

import numpy as np

MULTIPLIERS = np.array([0x7FEB352D, 0x846CA68B], np.uint32)


def attention(q, k, v, g, segments, bias=None, factors=None):
    """Arrays [B, L, H, d], bias [H, L, L], factors [B, H, L, L] that dropout multiplies the weights with, all float64.

    Returns the output and the gradients of q, k, v and bias where that of the output is `g`.
    """
    query, key = segments[:, None, :, None], segments[:, None, None, :]
    may_meet = np.where(query == 0, key > 0, query == key)
    logits = np.einsum("bqhd,bkhd->bhqk", q, k)
    logits = np.where(may_meet, logits if bias is None else logits + bias, -1e30)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    factors = np.ones_like(weights) if factors is None else factors
    out = np.einsum("bhqk,bkhd->bqhd", weights * factors, v)
    g_v = np.einsum("bhqk,bqhd->bkhd", weights * factors, g)
    g_weights = np.einsum("bqhd,bkhd->bhqk", g, v) * factors
    g_logits = weights * (g_weights - (weights * g_weights).sum(-1, keepdims=True)) * may_meet
    g_q = np.einsum("bhqk,bkhd->bqhd", g_logits, k)
    g_k = np.einsum("bhqk,bqhd->bkhd", g_logits, q)
    return out, g_q, g_k, g_v, g_logits.sum(0)


def matrix_of(table, length):
    """[H, 2 L - 1] -> [H, L, L]."""
    return np.stack([table[:, length - 1 - i : 2 * length - 1 - i] for i in range(length)], 1)


def table_of(g_matrix):
    """The gradient of a matrix made from a table -> that of the table."""
    length = g_matrix.shape[-1]
    return np.stack([np.trace(g_matrix, k, 1, 2) for k in range(1 - length, length)], 1)


def _hash(x, second=np.uint32(0)):
    x = x ^ (x >> np.uint32(16))
    x = x * MULTIPLIERS[0]
    x = (x ^ (x >> np.uint32(15))) + second
    x = x * MULTIPLIERS[1]
    return x ^ (x >> np.uint32(16))


def kept(seed, heads, rows, length, kept_of_256):
    """Boolean [rows, heads, L, L]: which weights dropout keeps."""
    with np.errstate(over="ignore"):
        seed, heads, rows = (np.atleast_1d(np.asarray(x, np.uint32)) for x in (seed, heads, rows))
        first, second = (
            _hash(_hash(_hash(seed[i : i + 1, None]) ^ heads[None]) ^ rows[:, None])[..., None, None] for i in (0, 1)
        )
        query, key = np.arange(length, dtype=np.uint32)[:, None], np.arange(length, dtype=np.uint32)[None]
        place = (query << np.uint32(16)) | (key % np.uint32(128))
        word = _hash(place ^ first ^ (key // np.uint32(512) * np.uint32(128)), second)
    byte = (word >> (key // np.uint32(128) % np.uint32(4) * np.uint32(8))).astype(np.uint8)
    return byte.view(np.int8) < kept_of_256 - 128
