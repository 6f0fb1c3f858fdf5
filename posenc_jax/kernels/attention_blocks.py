"""What `biased_attention` does at one step of its grid: a block of heads, all words of one row of the batch.

W: lanes of the block, its heads beside each other. Q: queries worked on at a time, K: all keys.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from posenc_jax.kernels.dropout import LANES, keep, row_key

Ref = Any
"""A part of an array in a chip's fast memory, which Pallas has no public type for."""
_MASKED = -1e30
"""Added to the logit of a pair that may not meet: all else in it is rounded away, as if it had been replaced."""
_SUBLANES = 8
_reciprocal = pltpu.reciprocal if hasattr(pltpu, "reciprocal") else pl.reciprocal  # moved after jax 0.10
_QUERIES = 512
"""Rows of a matrix of logits that are worked on at a time."""


@dataclasses.dataclass(frozen=True)
class Form:
    """What the kernels are written for."""

    heads: int
    head_width: int
    length: int
    bias: Literal["none", "matrix", "table"]
    kept: int = 256
    """Weights of 256 that dropout keeps."""
    interpret: bool = False

    @property
    def block_heads(self) -> int:
        """Those that fill 128 lanes, or all where they are fewer; a wider head alone."""
        return min(self.heads, max(1, LANES // self.head_width))

    @property
    def block_width(self) -> int:
        return self.block_heads * self.head_width

    @property
    def table_width(self) -> int:
        """Entries of a table, one a difference, filled up to whole lanes."""
        return -(-(2 * self.length - 1) // LANES) * LANES

    @property
    def unit(self) -> float:
        """What a kept weight is multiplied with."""
        return 256 / max(self.kept, 1)

    def chunks(self) -> list[slice]:
        return [slice(first, min(first + _QUERIES, self.length)) for first in range(0, self.length, _QUERIES)]

    def lanes(self, head: int) -> slice:
        return slice(head * self.head_width, (head + 1) * self.head_width)


def forward(
    form: Form,
    numbers_ref: Ref,
    rows_ref: Ref,
    has_words_ref: Ref,
    q_ref: Ref,
    k_ref: Ref,
    v_ref: Ref,
    segments_ref: Ref,
    *refs: Ref,
) -> None:
    """`refs`: the bias if there is one, the output, a bias to be made from a table."""
    bias_ref, (out_ref, *scratch) = _taken(form.bias != "none", refs)
    matrix_ref = _toeplitz(form, bias_ref, scratch)
    keep_head = _keeper(form, numbers_ref, rows_ref)
    k_KxW, v_KxW = _without_other_rows(form, k_ref[0]), _without_other_rows(form, v_ref[0])
    segment_1xK = segments_ref[0].astype(jnp.float32)
    query_Kx128 = _turned(segment_1xK)
    for chunk in form.chunks():
        mask_QxK = _mask(query_Kx128[chunk], segment_1xK)
        out_QxW = total_QxW = None
        for head in range(form.block_heads):
            q_QxW = _only_head(form, head, q_ref[0, chunk])
            weight_QxK, total_Qx1 = _weights(q_QxW, k_KxW, _part(matrix_ref, head, chunk), mask_QxK)
            weight_QxK = jnp.where(keep_head(head, chunk), weight_QxK, 0.0) if form.kept < 256 else weight_QxK
            out_QxW = _beside(form, head, out_QxW, _dot(weight_QxK.astype(v_KxW.dtype), v_KxW))
            total_QxW = _beside(form, head, total_QxW, jnp.broadcast_to(total_Qx1, out_QxW.shape))
        out_ref[0, chunk] = (out_QxW * (form.unit * _inverse(total_QxW))).astype(out_ref.dtype)


def backward(
    form: Form,
    numbers_ref: Ref,
    rows_ref: Ref,
    has_words_ref: Ref,
    q_ref: Ref,
    k_ref: Ref,
    v_ref: Ref,
    g_ref: Ref,
    segments_ref: Ref,
    *refs: Ref,
) -> None:
    """`refs`: the bias if there is one, the gradients of q, k, v and of it, a bias made from a table and its gradient.

    With p the weights, r the keep mask over the keep rate and g_p = g v': g_v = (r p)' g, g_q = g_s k, g_k = g_s' q,
    where g_s = p (r g_p - sum(p r g_p)), whose sum over the rows of the batch is the gradient of the bias.
    """
    bias_ref, (g_q_ref, g_k_ref, g_v_ref, *rest) = _taken(form.bias != "none", refs)
    g_bias_ref, scratch = _taken(form.bias != "none", rest)
    matrix_ref = _toeplitz(form, bias_ref, scratch[:1])
    sum_ref = scratch[1] if form.bias == "table" else g_bias_ref
    keep_head = _keeper(form, numbers_ref, rows_ref)
    if sum_ref is not None:

        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            sum_ref[...] = jnp.zeros(sum_ref.shape, sum_ref.dtype)

    k_KxW, v_KxW = _without_other_rows(form, k_ref[0]), _without_other_rows(form, v_ref[0])
    segment_1xK = segments_ref[0].astype(jnp.float32)
    q_WxK, g_WxK, query_Kx128 = q_ref[0].T, g_ref[0].T, _turned(segment_1xK)
    # The weights of a row without a word are even, whatever its logits: nothing flows back into them.
    has_words = has_words_ref[pl.program_id(1)] > 0
    g_k, g_v = [None] * form.block_heads, [None] * form.block_heads
    for chunk in form.chunks():
        mask_QxK = _mask(query_Kx128[chunk], segment_1xK)
        g_q_QxW = None
        for head in range(form.block_heads):
            q_QxW = _only_head(form, head, q_ref[0, chunk])
            weight_QxK, total_Qx1 = _weights(q_QxW, k_KxW, _part(matrix_ref, head, chunk), mask_QxK)
            weight_QxK = weight_QxK * (form.unit * _inverse(total_Qx1))
            # Before the product of g_v: after it, the compiler's schedule is 7 % longer.
            g_weight_QxK = _dot(_only_head(form, head, g_ref[0, chunk], has_words), v_KxW, turned=True)
            kept_QxK = jnp.where(keep_head(head, chunk), weight_QxK, 0.0) if form.kept < 256 else weight_QxK
            g_v[head] = _sum(g_v[head], _dot(g_WxK[form.lanes(head), chunk], kept_QxK.astype(g_WxK.dtype)))
            g_s_QxK = kept_QxK * g_weight_QxK
            g_s_QxK = g_s_QxK - weight_QxK * (jnp.sum(g_s_QxK, axis=1, keepdims=True) / form.unit)
            if sum_ref is not None:
                sum_ref[head, chunk] += g_s_QxK
            g_s_QxK = g_s_QxK.astype(k_KxW.dtype)
            g_k[head] = _sum(g_k[head], _dot(q_WxK[form.lanes(head), chunk], g_s_QxK))
            g_q_QxW = _beside(form, head, g_q_QxW, _dot(g_s_QxK, k_KxW))
        g_q_ref[0, chunk] = g_q_QxW.astype(g_q_ref.dtype)
    g_k_ref[0], g_v_ref[0] = (jnp.concatenate(parts).T.astype(k_KxW.dtype) for parts in (g_k, g_v))
    if form.bias == "table":

        @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
        def _() -> None:
            _fold_toeplitz(form, sum_ref, g_bias_ref)


def _taken(there: bool, refs: Sequence[Ref]) -> tuple[Ref | None, Sequence[Ref]]:
    return (refs[0], refs[1:]) if there else (None, refs)


# ---- the bias -----------------------------------------------------------------------------------------------------


def _toeplitz(form: Form, bias_ref: Ref | None, scratch: Sequence[Ref]) -> Ref | None:
    """The matrix of each head: row i of one made from a table is the table moved i places to the right.

    Eight rows, then twice as many as there are until there are enough: every move is one of whole arrays.
    """
    if form.bias != "table":
        return bias_ref

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        for head in range(form.block_heads):
            table_8xT = jnp.broadcast_to(bias_ref[head], (_SUBLANES, form.table_width))
            rows_RxT = _moved_by_row(pltpu.roll(table_8xT, form.table_width - form.length + 1, 1), 1)
            while rows_RxT.shape[0] < form.length:
                rows_RxT = jnp.concatenate([rows_RxT, pltpu.roll(rows_RxT, rows_RxT.shape[0], 1)])
            scratch[0][head] = rows_RxT[: form.length, : form.length]

    return scratch[0]


def _fold_toeplitz(form: Form, sum_ref: Ref, g_bias_ref: Ref) -> None:
    """Sums a matrix's diagonals: the way of `_toeplitz` backwards."""
    rows = _SUBLANES
    while rows < form.length:
        rows *= 2
    for head in range(form.block_heads):
        sum_RxT = jnp.pad(sum_ref[head], ((0, rows - form.length), (0, form.table_width - form.length)))
        while (half := sum_RxT.shape[0] // 2) >= _SUBLANES:
            sum_RxT = sum_RxT[:half] + pltpu.roll(sum_RxT[half:], form.table_width - half, 1)
        sum_8xT = _moved_by_row(sum_RxT, form.table_width - 1)
        g_bias_ref[head] = pltpu.roll(jnp.sum(sum_8xT, axis=0, keepdims=True), form.length - 1, 1)


def _moved_by_row(x_8xT: jax.Array, places: int) -> jax.Array:
    """Row i moved i times so many places to the right."""
    row_8xT = jax.lax.broadcasted_iota(jnp.int32, x_8xT.shape, 0)
    for bit in (1, 2, 4):
        x_8xT = jnp.where(row_8xT & bit != 0, pltpu.roll(x_8xT, bit * places % x_8xT.shape[1], 1), x_8xT)
    return x_8xT


def _part(matrix_ref: Ref | None, head: int, chunk: slice) -> jax.Array | None:
    return None if matrix_ref is None else matrix_ref[head, chunk].astype(jnp.float32)


# ---- weights ------------------------------------------------------------------------------------------------------


def _weights(
    q_QxW: jax.Array, k_KxW: jax.Array, bias_QxK: jax.Array | None, mask_QxK: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Weights before they are divided by their sums [Q, 1], and these."""
    logits_QxK = _dot(q_QxW, k_KxW, turned=True)
    logits_QxK = (logits_QxK if bias_QxK is None else logits_QxK + bias_QxK) + mask_QxK
    weight_QxK = jnp.exp(logits_QxK - jnp.max(logits_QxK, axis=1, keepdims=True))
    return weight_QxK, jnp.sum(weight_QxK, axis=1, keepdims=True)


def _mask(query_Qx128: jax.Array, key_1xK: jax.Array) -> jax.Array:
    """What is added to the logits: words meet those of their own segment, and padding, to which all segments are the
    first, meets every word."""
    word_Qx128 = jnp.maximum(query_Qx128, 1.0)
    most_Qx128 = jnp.where(query_Qx128 == 0, 1.0, jnp.inf)
    word_QxK, most_QxK = (_repeated(x_Qx128, key_1xK.shape[1]) for x_Qx128 in (word_Qx128, most_Qx128))
    return jnp.where(jnp.minimum(key_1xK, most_QxK) == word_QxK, 0.0, _MASKED)


def _turned(segments_1xK: jax.Array) -> jax.Array:
    """[K, 128], each lane the same: the form in which a query's segment meets the keys' without a move of lanes."""
    return jnp.broadcast_to(segments_1xK, (LANES, segments_1xK.shape[1])).T


def _repeated(x_Qx128: jax.Array, keys: int) -> jax.Array:
    return jnp.concatenate([x_Qx128] * -(-keys // LANES), axis=1)[:, :keys]


def _inverse(total: jax.Array) -> jax.Array:
    """1 / total, by the chip's estimate and Newton's steps: a division also looks for zeros and infinities, and here
    are none."""
    inverse = _reciprocal(total, approx=True)
    for _ in range(2):
        inverse = inverse * (2 - total * inverse)
    return inverse


def _keeper(form: Form, numbers_ref: Ref, rows_ref: Ref) -> Callable[[int, slice], jax.Array]:
    """keep_head(head of the block, chunk) -> boolean [Q, K]."""
    first_head, row = numbers_ref[2] + pl.program_id(0) * form.block_heads, rows_ref[pl.program_id(1)]
    seed = numbers_ref[0], numbers_ref[1]

    def keep_head(head: int, chunk: slice) -> jax.Array:
        key = row_key(seed, first_head + head, row)
        return keep(key, form.kept, chunk.stop - chunk.start, form.length, chunk.start)

    return keep_head


# ---- heads in their lanes -----------------------------------------------------------------------------------------


def _only_head(form: Form, head: int, x_QxW: jax.Array, there: jax.Array | bool = True) -> jax.Array:
    """Zeros in the lanes of other heads: products with whole blocks are then this head's. Zeros only unless `there`."""
    lanes = form.lanes(head)
    stop = lanes.stop if there is True else jnp.where(there, lanes.stop, lanes.start)
    lane_QxW = jax.lax.broadcasted_iota(jnp.int32, x_QxW.shape, 1)
    is_inside_QxW = (lane_QxW >= lanes.start) & (lane_QxW < stop)
    return jnp.where(is_inside_QxW, x_QxW.astype(jnp.float32), 0.0).astype(x_QxW.dtype)


def _without_other_rows(form: Form, x_KxW: jax.Array) -> jax.Array:
    """Zeros in the lanes of heads that the last block has and the array has not: what stands there may be NaN."""
    if form.heads % form.block_heads == 0:
        return x_KxW
    there = (form.heads - pl.program_id(0) * form.block_heads) * form.head_width
    lane_KxW = jax.lax.broadcasted_iota(jnp.int32, x_KxW.shape, 1)
    return jnp.where(lane_KxW < there, x_KxW.astype(jnp.float32), 0.0).astype(x_KxW.dtype)


def _beside(form: Form, head: int, others_QxW: jax.Array | None, own_QxW: jax.Array) -> jax.Array:
    """The heads before this one in their lanes, this one in its own."""
    if others_QxW is None:
        return own_QxW
    lane_QxW = jax.lax.broadcasted_iota(jnp.int32, own_QxW.shape, 1)
    return jnp.where(lane_QxW >= form.lanes(head).start, own_QxW, others_QxW)


def _sum(x: jax.Array | None, y: jax.Array) -> jax.Array:
    return y if x is None else x + y


def _dot(x: jax.Array, y: jax.Array, turned: bool = False) -> jax.Array:
    """x y, or x y', summed in float32."""
    return jax.lax.dot_general(x, y, (((1,), (int(turned),)), ((), ())), preferred_element_type=jnp.float32)
