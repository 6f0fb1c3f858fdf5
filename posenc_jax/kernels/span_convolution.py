"""Span-dynamic convolution (ConvBERT, Jiang et al. 2020) in one TPU kernel a direction.

    logits = (query * key) weight + bias,  window = softmax(logits) over the slots,
    out[t] = sum_j window[t, j] * value[t + j - (K - 1) / 2], a head at a time

One program does one row of the batch. A tile of words has its windows as a band of a [128, words] matrix, so that the
sum, its gradient for the values (the band transposed) and that for the windows (query-key form) are matrix products.
The band comes from [slots, words] by moving word t's column t rows down. The backward pass recomputes the windows:
nothing but the inputs is kept. How it is laid out is our choice.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from posenc_jax.errors import UsageError
from posenc_jax.kernels.span_kernels import backward_kernel, forward_kernel
from posenc_jax.kernels.span_plan import (
    LANES,
    SUBLANES,
    Plan,
    band_masks,
    packed_weights,
    refuses,
    segment_windows,
    spread,
    unpacked_weights,
)


def span_convolution(
    query_BxLxA: jax.Array,
    key_BxLxA: jax.Array,
    weight_AxHxK: jax.Array,
    bias_HxK: jax.Array,
    value_BxLxA: jax.Array,
    segments_BxL: jax.Array | None = None,
    *,
    interpret: bool = False,
) -> jax.Array:
    """[B, L, A], A = H d channels head by head; gradients for all but the segments.

    `segments_BxL` (0: padding): a word takes nothing from another document or from padding, and padding nothing at
    all; without them only the ends of the row count, as `model.convolution` has it. Weights are not renormalised.
    Query, key and value are all float32 or all bfloat16; the softmax and all sums are float32. A value that is not
    finite spoils the words within 128 of it, not only those that look at it. `interpret` runs on any platform. On a
    mesh: within `jax.shard_map(..., check_vma=False)`, rows of the batch cut, the rest whole; that adds up the weights'
    gradients, too.
    Raises `UsageError` with the sentence of `refuses`.
    """
    (_, length, width), (_, heads, slots) = query_BxLxA.shape, weight_AxHxK.shape
    reason = refuses(heads, width // heads, slots, length, query_BxLxA.dtype.name)
    if reason:
        raise UsageError(reason)
    more = ((0, 0), (0, -length % SUBLANES))
    if more[1][1]:
        query_BxLxA, key_BxLxA, value_BxLxA = (
            jnp.pad(x, (*more, (0, 0))) for x in (query_BxLxA, key_BxLxA, value_BxLxA)
        )
        segments_BxL = None if segments_BxL is None else jnp.pad(segments_BxL, more)
    out = _convolved(query_BxLxA, key_BxLxA, weight_AxHxK, bias_HxK, value_BxLxA, segments_BxL, interpret)
    return out[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def _convolved(query, key, weight, bias, value, segments, interpret):
    return _forward(query, key, weight, bias, value, segments, interpret)[0]


def _forward(query, key, weight, bias, value, segments, interpret):
    plan, shared, windows = _given(query, weight, bias, segments, words_first=True)
    scratch = [pltpu.VMEM((plan.padded_length, plan.width), query.dtype)]
    kernel = functools.partial(forward_kernel, plan, segments is not None)
    outs = [jax.ShapeDtypeStruct(value.shape, value.dtype)]
    (out,) = _call(kernel, plan, [query, key, value, *windows], shared, outs, scratch, interpret)
    return out, (query, key, weight, bias, value, segments)


def _backward(interpret, saved, g):
    query, key, weight, bias, value, segments = saved
    plan, shared, windows = _given(query, weight, bias, segments, words_first=False)
    scratch = [pltpu.VMEM((plan.padded_length, plan.width), query.dtype)]
    kernel = functools.partial(backward_kernel, plan, segments is not None)
    outs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, key, value)]
    outs += [jax.ShapeDtypeStruct((plan.logit_rows, lanes), jnp.float32) for lanes in (plan.width, LANES)]
    g_q, g_k, g_v, *sums = _call(kernel, plan, [query, key, value, g, *windows], shared, outs, scratch, interpret)
    g_weight, g_bias = unpacked_weights(plan, *sums)
    return g_q, g_k, g_weight.astype(weight.dtype), g_bias.astype(bias.dtype), g_v, None


_convolved.defvjp(_forward, _backward)


def _given(query, weight, bias, segments, words_first):
    (_, length, width), (_, heads, slots) = query.shape, weight.shape
    plan, dtype = Plan(length, heads, width // heads, slots), query.dtype.name
    weight_SxA, bias_SxW = packed_weights(plan, weight, bias, dtype)
    shared = [weight_SxA, bias_SxW, jnp.asarray(spread(plan, dtype)), jnp.asarray(band_masks(plan, dtype, words_first))]
    return plan, shared, [] if segments is None else [segment_windows(plan, segments)]


def _call(
    kernel: Callable, plan: Plan, by_row: Sequence, shared: Sequence, outs: Sequence, scratch: Sequence, interpret: bool
) -> list[jax.Array]:
    """One program a row of the batch. Outputs without a batch axis are added up, so that rows come one by one."""

    def spec(x: Any) -> pl.BlockSpec:
        return pl.BlockSpec(x.shape, lambda row: (0, 0)) if len(x.shape) == 2 else _row_block(x)

    sums = any(len(x.shape) == 2 for x in outs)
    itemsize = by_row[0].dtype.itemsize
    return pl.pallas_call(
        kernel,
        name="span_convolution_backward" if sums else "span_convolution",
        grid=by_row[0].shape[:1],
        in_specs=[spec(x) for x in (*shared, *by_row)],
        out_specs=[spec(x) for x in outs],
        out_shape=outs,
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary" if sums else "parallel",),
            vmem_limit_bytes=plan.memory(itemsize),
        ),
        interpret=interpret,
    )(*shared, *by_row)


def _row_block(x: Any) -> pl.BlockSpec:
    return pl.BlockSpec((1, *x.shape[1:]), lambda row: (row, 0, 0))
