"""The two programs of the span-dynamic convolution: a row of the batch forward, and a row backward.

Shapes: L words of the row, A channels, R words of a tile, S rows of logits, W = 128 rows of a band or of the window of
values that a tile looks at, C lanes of a block of channels, O words whose gradient is not yet whole.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from posenc_jax.kernels.span_plan import LANES, Plan

Ref = Any


def forward_kernel(
    plan: Plan, has_segments: bool, weight_SxA: Ref, bias_SxW: Ref, spread: Ref, masks: Ref, query: Ref, key: Ref,
    value: Ref, *rest: Ref,
) -> None:  # fmt: skip
    segments, (out, padded_value) = (rest[0], rest[1:]) if has_segments else (None, rest)
    _pad(plan, value, padded_value)
    for number, (start, end) in enumerate(plan.tiles):
        reaches_SxR = _reaches(plan, segments, number, end - start)
        _, window_SxR = _windows(plan, query[0, start:end], key[0, start:end], weight_SxA, bias_SxW)
        skewed = [x_WxR.T.astype(query.dtype) for x_WxR in _skewed_windows(plan, window_SxR, reaches_SxR, spread)]
        for first, last, heads in plan.lane_blocks:
            out_RxC = None
            for head in heads:
                band, at = plan.place(head)
                band_RxW = _and(skewed[band], masks[_mask_rows(plan, at)][: end - start])
                own_RxC = _dot(band_RxW, _seen(plan, padded_value, start, first, last, at), (1, 0))
                out_RxC = own_RxC if out_RxC is None else jnp.where(_is_own(plan, head, first, last), own_RxC, out_RxC)
            out[0, start:end, first:last] = out_RxC.astype(out.dtype)


def backward_kernel(
    plan: Plan, has_segments: bool, weight_SxA: Ref, bias_SxW: Ref, spread: Ref, masks: Ref, query: Ref, key: Ref,
    value: Ref, g_out: Ref, *rest: Ref,
) -> None:  # fmt: skip
    segments, rest = (rest[0], rest[1:]) if has_segments else (None, rest)
    g_query, g_key, g_value, g_weight_SxA, g_bias_SxW, padded_value = rest
    _pad(plan, value, padded_value)
    left_OxC = {}

    @pl.when(pl.program_id(0) == 0)
    def _():
        g_weight_SxA[...] = jnp.zeros_like(g_weight_SxA)
        g_bias_SxW[...] = jnp.zeros_like(g_bias_SxW)

    for number, (start, end) in enumerate(plan.tiles):
        q_RxA, k_RxA = query[0, start:end], key[0, start:end]
        reaches_SxR = _reaches(plan, segments, number, end - start)
        asked_RxA, window_SxR = _windows(plan, q_RxA, k_RxA, weight_SxA, bias_SxW)
        skewed = [x_WxR.astype(query.dtype) for x_WxR in _skewed_windows(plan, window_SxR, reaches_SxR, spread)]
        g_bands = [jnp.zeros((LANES, end - start), jnp.float32)] * plan.bands
        scores_WxR = {}
        for first, last, heads in plan.lane_blocks:
            g_RxC = g_out[0, start:end, first:last]
            g_seen_WxC = None
            for head in heads:
                (band, at), is_own = plan.place(head), _is_own(plan, head, first, last)
                seen_WxC = _and(_seen(plan, padded_value, start, first, last, at), _bits(is_own))
                score_WxR = _dot(seen_WxC, g_RxC, (1, 1))
                scores_WxR[head] = scores_WxR[head] + score_WxR if head in scores_WxR else score_WxR
                band_WxR = _and(skewed[band], masks[_mask_rows(plan, at)][:, : end - start])
                own_WxC = _rolled(_dot(band_WxR, g_RxC, (1, 0)), -at)
                g_seen_WxC = own_WxC if g_seen_WxC is None else jnp.where(is_own, own_WxC, g_seen_WxC)
            left_OxC[first] = _give(plan, g_value, g_seen_WxC, left_OxC.get(first), number, first, last)
        for head, score_WxR in scores_WxR.items():
            band, at = plan.place(head)
            g_bands[band] = jnp.where(_is_place(plan, at, end - start), score_WxR, g_bands[band])
        g_window_SxR = _unskewed(plan, g_bands, spread)
        g_window_SxR = g_window_SxR if reaches_SxR is None else g_window_SxR * reaches_SxR
        g_logits_SxR = _softmax_gradient(plan, window_SxR, g_window_SxR)
        g_bias_SxW[:, : end - start] += g_logits_SxR
        g_logits_SxR = g_logits_SxR.astype(query.dtype)
        g_weight_SxA[...] += _dot(g_logits_SxR, asked_RxA, (1, 0))
        g_asked_RxA = _dot(g_logits_SxR, weight_SxA[...], (0, 0))
        g_query[0, start:end] = (g_asked_RxA * k_RxA.astype(jnp.float32)).astype(g_query.dtype)
        g_key[0, start:end] = (g_asked_RxA * q_RxA.astype(jnp.float32)).astype(g_key.dtype)


def _pad(plan: Plan, value: Ref, padded: Ref) -> None:
    """The row with rows of zeros before and after it, on which windows can start at whole registers."""
    after = plan.halo + plan.length
    padded[: plan.halo] = jnp.zeros((plan.halo, plan.width), padded.dtype)
    padded[plan.halo : after] = value[0]
    padded[after:] = jnp.zeros((plan.padded_length - after, plan.width), padded.dtype)


def _give(plan: Plan, g_value: Ref, g_seen_WxC, left_OxC, number: int, first: int, last: int) -> jax.Array:
    """Adds the gradient of a tile's window to what earlier tiles left, writes the words that no later tile sees, and
    returns the sum so far of the others. It writes from one multiple of 16 words to the next, as bfloat16 is packed.
    """
    begins = [max(0, start - 16 * -(-plan.halo // 16)) for start, _ in plan.tiles] + [plan.length]
    begin, end = begins[number : number + 2]
    window = plan.tiles[number][0] - plan.halo
    total_OxC = g_seen_WxC[max(0, begin - window) :]
    if left_OxC is not None:
        alone = max(0, window - begin)
        both = left_OxC.shape[0] - alone
        parts = [left_OxC[:alone]] * (alone > 0) + [left_OxC[alone:] + total_OxC[:both], total_OxC[both:]]
        total_OxC = jnp.concatenate(parts)
    if end > begin:
        g_value[0, begin:end, first:last] = total_OxC[: end - begin].astype(g_value.dtype)
    return total_OxC[end - begin :]


def _seen(plan: Plan, padded: Ref, start: int, first: int, last: int, at: int) -> jax.Array:
    """[W, C]: the values that a tile looks at, rolled down to the place of a head's weights in the band."""
    if not at:
        return padded[start : start + LANES, first:last]
    split = start + LANES - at
    return jnp.concatenate([padded[split : start + LANES, first:last], padded[start:split, first:last]])


def _windows(plan: Plan, q_RxA, k_RxA, weight_SxA: Ref, bias_SxW: Ref) -> tuple[jax.Array, jax.Array]:
    """query * key, and the softmax of every word and head."""
    asked_RxA = q_RxA * k_RxA
    logits_SxR = _dot(weight_SxA[...], asked_RxA, (1, 1)) + bias_SxW[:, : q_RxA.shape[0]]
    logits_HxR = _by_slot(plan, logits_SxR)
    most_HxR = functools.reduce(jnp.maximum, logits_HxR)
    powers_HxR = [jnp.exp(x_HxR - most_HxR) for x_HxR in logits_HxR]
    inverse_HxR = 1 / functools.reduce(jnp.add, powers_HxR)
    return asked_RxA, jnp.concatenate([x_HxR * inverse_HxR for x_HxR in powers_HxR])


def _softmax_gradient(plan: Plan, window_SxR: jax.Array, g_window_SxR: jax.Array) -> jax.Array:
    weighted_SxR = window_SxR * g_window_SxR
    total_HxR = functools.reduce(jnp.add, _by_slot(plan, weighted_SxR))
    return weighted_SxR - window_SxR * jnp.concatenate([total_HxR] * plan.slots)


def _by_slot(plan: Plan, x_SxR: jax.Array) -> list[jax.Array]:
    return [x_SxR[at : at + plan.heads_padded] for at in range(0, plan.logit_rows, plan.heads_padded)]


def _reaches(plan: Plan, segments: Ref | None, number: int, words: int) -> jax.Array | None:
    """[S, R]: 1 where what a slot looks at is a word of the same document, else 0."""
    if segments is None:
        return None
    around_1xW = segments[0, number : number + 1]
    seen = [pltpu.roll(around_1xW, -(plan.first + slot) % LANES, 1)[:, :words] for slot in range(plan.slots)]
    own_1xR = seen[plan.slots // 2]
    reaches = [((seen_1xR == own_1xR) & (own_1xR > 0)).astype(jnp.float32) for seen_1xR in seen]
    return jnp.concatenate([jnp.broadcast_to(x_1xR, (plan.heads_padded, words)) for x_1xR in reaches])


def _skewed_windows(plan: Plan, window_SxR: jax.Array, reaches_SxR: jax.Array | None, spread: Ref) -> list[jax.Array]:
    """[W, R] a band: word t's weights t rows further down than word 0's, those of all heads of the band together."""
    window_SxR = (window_SxR if reaches_SxR is None else window_SxR * reaches_SxR).astype(spread.dtype)
    bands = range(0, plan.bands * LANES, LANES)
    return [_skewed(_dot(spread[at : at + LANES], window_SxR, (1, 0)), 1) for at in bands]


def _unskewed(plan: Plan, bands: list[jax.Array], spread: Ref) -> jax.Array:
    """[S, R] from [W, R] a band."""
    total_SxR = None
    for band, x_WxR in enumerate(bands):
        straight_WxR = _skewed(x_WxR, -1).astype(spread.dtype)
        part_SxR = _dot(spread[band * LANES : (band + 1) * LANES], straight_WxR, (0, 0))
        total_SxR = part_SxR if total_SxR is None else total_SxR + part_SxR
    return total_SxR


def _skewed(x_WxR: jax.Array, sign: int) -> jax.Array:
    """Column t rolled by sign * t rows, down where it is 1: bit by bit of t, as TPUs roll all columns alike."""
    column = jax.lax.broadcasted_iota(jnp.int32, (1, x_WxR.shape[1]), 1)
    for bit in (1, 2, 4, 8, 16, 32, 64):
        if bit < x_WxR.shape[1]:
            x_WxR = jnp.where(column & bit != 0, _rolled(x_WxR, sign * bit), x_WxR)
    return x_WxR


def _rolled(x_WxR: jax.Array, shift: int) -> jax.Array:
    return pltpu.roll(x_WxR, shift % LANES, 0) if shift % LANES else x_WxR


def _mask_rows(plan: Plan, at: int) -> slice:
    place = at // plan.head_rows
    return slice(place * LANES, (place + 1) * LANES)


def _is_place(plan: Plan, at: int, words: int) -> jax.Array:
    """[W, R]: where `span_plan.band_masks` has ones."""
    row = jax.lax.broadcasted_iota(jnp.int32, (LANES, words), 0)
    word = jax.lax.broadcasted_iota(jnp.int32, (LANES, words), 1)
    return ((row - word) & (LANES - plan.head_rows)) == at


def _is_own(plan: Plan, head: int, first: int, last: int) -> jax.Array:
    """[1, C]: which channels of a block are a head's."""
    channel = first + jax.lax.broadcasted_iota(jnp.int32, (1, last - first), 1)
    return (channel >= head * plan.head_width) & (channel < (head + 1) * plan.head_width)


def _bits(is_kept: jax.Array) -> jax.Array:
    return jnp.where(is_kept, jnp.uint32(0xFFFFFFFF), jnp.uint32(0))


def _and(x: jax.Array, mask: jax.Array) -> jax.Array:
    """x where the mask has ones, else 0: by bits, as no chip before v6e selects bfloat16 without unpacking it."""
    words = mask if mask.dtype == jnp.uint32 else pltpu.bitcast(mask, jnp.uint32)
    return pltpu.bitcast(pltpu.bitcast(x, jnp.uint32) & words, x.dtype)


def _dot(a: jax.Array, b: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """float32, summed over an axis of each; exact products of float32 as of bfloat16."""
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    dimensions = (((axes[0],), (axes[1],)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, precision=precision, preferred_element_type=jnp.float32)
