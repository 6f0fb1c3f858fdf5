"""How alike the vectors of different words are, and the attention of different heads: cosines, for a penalty or a look.

Everything here but the idea (Zhang et al. 2023, TCD and HCD) is our choice (ddrp_mth_and_symmetric.md 1.3, 1.5). Each
measure is a sum, its weight apart. Forms of a mean cosine over pairs of different vectors:

plain    the cosine; of words it sees only their common mean, so a shifted bias alone can lower it
squared  its square
centred  the cosine after the mean was taken away: the text's mean vector, or a row's mean attention weight
"""

import jax
import jax.numpy as jnp

WORD_EPSILON, HEAD_EPSILON = 1e-6, 1e-8
"""Below the square root of a norm: keeps gradients finite at a zero vector. Attention rows are short, 1 / sqrt(L) at
the least, so theirs is smaller."""

WORDS, HEADS = "word_cosines", "head_cosines"
"""Collections in which the encoder, and each layer, leave their sums when a caller makes them mutable."""

Sums = dict[str, jax.Array]


def count_texts(segments_BxL: jax.Array) -> jax.Array:
    """Texts of two words or more: the weight of `word_cosines`."""
    size_BxL = _same_text(segments_BxL).sum(-1)
    return jnp.round(jnp.where(size_BxL > 1, 1 / jnp.maximum(size_BxL, 1), 0.0).sum())


def word_cosines(hidden_BxLxD: jax.Array, segments_BxL: jax.Array) -> Sums:
    """Each form's mean over the pairs of different words of a text, summed over the texts of two words or more.

    A text is a segment of a row; padding, segment 0, is left out.
    """
    same_BxLxL = _same_text(segments_BxL).astype(jnp.float32)
    size_BxL = same_BxLxL.sum(-1)
    is_word_BxLx1 = segments_BxL[..., None] > 0
    hidden_BxLxD = jnp.where(is_word_BxLx1, hidden_BxLxD.astype(jnp.float32), 0.0)
    mean_BxLxD = jnp.einsum("BLK,BKD->BLD", same_BxLxL, hidden_BxLxD) / jnp.maximum(size_BxL, 1)[..., None]
    pairs_BxLxL = same_BxLxL * (1 - jnp.eye(hidden_BxLxD.shape[1]))[None]
    share_BxLx1 = 1 / jnp.maximum(size_BxL * (size_BxL - 1), 1)[..., None]

    def gather(vectors_BxLxD: jax.Array, power: int = 1) -> jax.Array:
        unit_BxLxD = _unit(vectors_BxLxD, is_word_BxLx1, WORD_EPSILON)
        cosine_BxLxL = jnp.einsum("BLD,BKD->BLK", unit_BxLxD, unit_BxLxD)
        return (cosine_BxLxL**power * pairs_BxLxL * share_BxLx1).sum()

    return {
        "plain": gather(hidden_BxLxD),
        "squared": gather(hidden_BxLxD, 2),
        "centred": gather(hidden_BxLxD - mean_BxLxD),
    }


def head_cosines(weights_BxHxLxL: jax.Array, may_meet_BxLxL: jax.Array, segments_BxL: jax.Array) -> Sums:
    """Each form's mean over the pairs of different heads, summed over queries that are no padding; and "entropy", the
    mean over the heads of their rows' entropy in nats, summed likewise.

    `weights_BxHxLxL` are softmax rows before dropout, query by key. The weight is the number of those queries.
    """
    heads = weights_BxHxLxL.shape[1]
    is_query_Bx1xLx1 = (segments_BxL > 0)[:, None, :, None]
    weights_BxHxLxL = weights_BxHxLxL.astype(jnp.float32)
    may_meet_Bx1xLxL = may_meet_BxLxL[:, None]
    keys_Bx1xLx1 = jnp.maximum(may_meet_Bx1xLxL.sum(-1, keepdims=True), 1)
    centred_BxHxLxL = jnp.where(may_meet_Bx1xLxL, weights_BxHxLxL - 1 / keys_Bx1xLx1, 0.0)

    def gather(rows_BxHxLxL: jax.Array, power: int = 1) -> jax.Array:
        unit_BxHxLxL = _unit(rows_BxHxLxL, is_query_Bx1xLx1, HEAD_EPSILON)
        cosine_BxLxHxH = jnp.einsum("BHQK,BGQK->BQHG", unit_BxHxLxL, unit_BxHxLxL)
        different_HxH = 1 - jnp.eye(heads)
        return (cosine_BxLxHxH**power * different_HxH[None, None]).sum() / max(heads * (heads - 1), 1)

    safe_BxHxLxL = jnp.where(weights_BxHxLxL > 0, weights_BxHxLxL, 1.0)
    entropy_BxHxLxL = -safe_BxHxLxL * jnp.log(safe_BxHxLxL) * is_query_Bx1xLx1
    return {
        "plain": gather(weights_BxHxLxL),
        "squared": gather(weights_BxHxLxL, 2),
        "centred": gather(centred_BxHxLxL),
        "entropy": entropy_BxHxLxL.sum() / heads,
    }


def _same_text(segments_BxL: jax.Array) -> jax.Array:
    return (segments_BxL[:, :, None] == segments_BxL[:, None, :]) & (segments_BxL > 0)[:, None, :]


def _unit(vectors: jax.Array, valid: jax.Array, epsilon: float) -> jax.Array:
    """Vectors of length 1 along the last axis, zeros where not `valid`.

    What is not valid is replaced before the root, not after: the gradient of a root at 0 is infinite, and infinity
    times the zero of a mask is NaN.
    """
    safe = jnp.where(valid, vectors, 1.0)
    return jnp.where(valid, safe * jax.lax.rsqrt((safe * safe).sum(-1, keepdims=True) + epsilon), 0.0)
