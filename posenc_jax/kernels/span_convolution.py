"""Span-dynamic convolution in one kernel a direction."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LANES = 128
_EMPTY = -1e30


class Plan(NamedTuple):
    length: int
    width: int
    heads: int
    slots: int
    halo: int
    rows: int
    slots_padded: int
    heads_padded: int
    precision: jax.lax.Precision | None

    @property
    def lanes(self) -> int:
        return self.slots_padded * self.heads_padded

    @property
    def by_heads(self) -> tuple[int, int]:
        """(lanes that a head's slots take, lanes of all)"""
        slots = 1 << (self.slots - 1).bit_length()
        return slots, -(-self.heads * slots // LANES) * LANES

    @property
    def starts(self) -> range:
        return range(0, self.length, self.rows)

    @property
    def window_rows(self) -> int:
        return self.starts[-1] + LANES


def make_plan(length, width, heads, slots, dtype) -> Plan:
    halo = -(-(slots // 2) // 8) * 8
    choices = []
    padded = 1 << (slots - 1).bit_length()
    while padded <= 128:
        h = heads
        while h * padded % LANES:
            h += 1
        choices.append((h * padded, padded, h))
        padded *= 2
    _, slots_padded, heads_padded = min(choices)
    precision = jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None
    return Plan(length, width, heads, slots, halo, LANES - 2 * halo, slots_padded, heads_padded, precision)


def _dot(plan, a, b, axes):
    return jax.lax.dot_general(a, b, (axes, ((), ())), precision=plan.precision, preferred_element_type=jnp.float32)


def _softmax(plan, logits):
    def over_slots(combine, x):
        shift = plan.heads_padded
        while shift < plan.lanes:
            x = combine(x, pltpu.roll(x, shift, 1))
            shift *= 2
        return x

    powers = jnp.exp(logits - over_slots(jnp.maximum, logits))
    return powers / over_slots(jnp.add, powers), functools.partial(over_slots, jnp.add)


def _band_mask(plan, rows):
    row = jax.lax.broadcasted_iota(jnp.int32, (rows, LANES), 0)
    column = jax.lax.broadcasted_iota(jnp.int32, (rows, LANES), 1)
    offset = column - row - (plan.halo - plan.slots // 2)
    return (offset >= 0) & (offset < plan.slots)


def _skewed(x, sign):
    """Row r rolled by sign * r lanes."""
    rows = x.shape[0]
    parts = [pltpu.roll(x[r : r + 8], sign * r % LANES, 1) if r else x[:8] for r in range(0, rows, 8)]
    x = jnp.concatenate(parts, 0)
    row = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
    for bit in (1, 2, 4):
        x = jnp.where(row & bit != 0, pltpu.roll(x, sign * bit % LANES, 1), x)
    return x


def _lane(plan, head):
    lanes, _ = plan.by_heads
    return head * lanes % LANES


def _rolled(x, shift):
    shift %= LANES
    return pltpu.roll(x, shift, 1) if shift else x


def _bands(plan, by_heads, allowed, dtype):
    lanes, whole = plan.by_heads
    blocks = [_skewed(by_heads[:, at : at + LANES], 1) for at in range(0, whole, LANES)]
    first = plan.halo - plan.slots // 2
    return [
        jnp.where(allowed, _rolled(blocks[h * lanes // LANES], first - _lane(plan, h)), 0).astype(dtype)
        for h in range(plan.heads)
    ]


def _blocks(plan):
    """(first lane, end, heads)"""
    size = plan.width // plan.heads
    for start in range(0, plan.width, LANES):
        end = min(start + LANES, plan.width)
        yield start, end, [h for h in range(plan.heads) if h * size < end and (h + 1) * size > start]


def _of_head(plan, head, start, end):
    size = plan.width // plan.heads
    lane = start + jax.lax.broadcasted_iota(jnp.int32, (1, end - start), 1)
    return (lane >= head * size) & (lane < (head + 1) * size)


def _fill(plan, value_ref, padded_ref):
    padded_ref[: plan.halo] = jnp.zeros((plan.halo, plan.width), padded_ref.dtype)
    padded_ref[plan.halo : plan.halo + plan.length] = value_ref[0].astype(padded_ref.dtype)
    rest = plan.window_rows - plan.halo - plan.length
    padded_ref[plan.halo + plan.length :] = jnp.zeros((rest, plan.width), padded_ref.dtype)


def _allowed(plan, windows_ref, index, rows):
    mask = _band_mask(plan, rows)
    if windows_ref is None:
        return mask
    seen = windows_ref[0, index : index + 1]
    row = jax.lax.broadcasted_iota(jnp.int32, (rows, LANES), 0)
    column = jax.lax.broadcasted_iota(jnp.int32, (rows, LANES), 1)
    own = jnp.sum(jnp.where(column == row + plan.halo, seen, 0), axis=1, keepdims=True)
    return mask & (seen == own) & (own > 0)


def _weights(plan, q, k, weight_ref, bias_ref, spread_ref):
    p = q * k
    logits = _dot(plan, p, weight_ref[...], ((1,), (1,))) + bias_ref[...]
    window, over_slots = _softmax(plan, logits)
    by_heads = _dot(plan, window.astype(q.dtype), spread_ref[...], ((1,), (0,)))
    return p, window, over_slots, by_heads


def _forward_kernel(plan, has_segments, q_ref, k_ref, weight_ref, bias_ref, v_ref, spread_ref, *rest):
    windows_ref, (o_ref, padded_ref) = (rest[0], rest[1:]) if has_segments else (None, rest)
    dtype = q_ref.dtype
    _fill(plan, v_ref, padded_ref)
    for index, t0 in enumerate(plan.starts):
        t1 = min(t0 + plan.rows, plan.length)
        _, _, _, by_heads = _weights(plan, q_ref[0, t0:t1], k_ref[0, t0:t1], weight_ref, bias_ref, spread_ref)
        allowed = _allowed(plan, windows_ref, index, t1 - t0)
        bands = _bands(plan, by_heads, allowed, dtype)
        for start, end, heads in _blocks(plan):
            seen = padded_ref[t0 : t0 + LANES, start:end].astype(dtype)
            out = None
            for h in heads:
                of_h = _dot(plan, bands[h], seen, ((1,), (0,)))
                out = of_h if out is None else jnp.where(_of_head(plan, h, start, end), of_h, out)
            o_ref[0, t0:t1, start:end] = out.astype(o_ref.dtype)


def _backward_kernel(plan, has_segments, q_ref, k_ref, weight_ref, bias_ref, v_ref, g_ref, spread_ref, *rest):
    windows_ref, rest = (rest[0], rest[1:]) if has_segments else (None, rest)
    dq_ref, dk_ref, dv_ref, dw_ref, db_ref, padded_ref, dpadded_ref = rest
    dtype = q_ref.dtype
    _fill(plan, v_ref, padded_ref)
    dpadded_ref[...] = jnp.zeros_like(dpadded_ref)

    @pl.when(pl.program_id(0) == 0)
    def _():
        dw_ref[...] = jnp.zeros_like(dw_ref)
        db_ref[...] = jnp.zeros_like(db_ref)

    for index, t0 in enumerate(plan.starts):
        t1 = min(t0 + plan.rows, plan.length)
        q, k = q_ref[0, t0:t1], k_ref[0, t0:t1]
        p, window, over_slots, by_heads = _weights(plan, q, k, weight_ref, bias_ref, spread_ref)
        allowed = _allowed(plan, windows_ref, index, t1 - t0)
        bands = _bands(plan, by_heads, allowed, dtype)
        scores = [None] * plan.heads
        for start, end, heads in _blocks(plan):
            seen = padded_ref[t0 : t0 + LANES, start:end].astype(dtype)
            g = g_ref[0, t0:t1, start:end]
            dv = None
            for h in heads:
                mine = _of_head(plan, h, start, end)
                score = _dot(plan, jnp.where(mine, g, jnp.zeros_like(g)), seen, ((1,), (1,)))
                scores[h] = score if scores[h] is None else scores[h] + score
                of_h = _dot(plan, bands[h], g, ((0,), (0,)))
                dv = of_h if dv is None else jnp.where(mine, of_h, dv)
            dpadded_ref[t0 : t0 + LANES, start:end] += dv
        lanes, whole = plan.by_heads
        blocks = [0.0] * (whole // LANES)
        for h in range(plan.heads):
            shift = _lane(plan, h) - plan.halo + plan.slots // 2
            blocks[h * lanes // LANES] += _rolled(jnp.where(allowed, scores[h], 0), shift)
        blocks = [_skewed(block, -1) for block in blocks]
        dwindow_hm = blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks, 1)
        high = dwindow_hm.astype(dtype)
        dwindow = _dot(plan, high, spread_ref[...], ((1,), (1,)))
        if dtype != jnp.float32:
            low = (dwindow_hm - high.astype(jnp.float32)).astype(dtype)
            dwindow += _dot(plan, low, spread_ref[...], ((1,), (1,)))
        weighted = window * dwindow
        dlogits = weighted - window * over_slots(weighted)
        db_ref[...] += jnp.sum(dlogits, axis=0, keepdims=True)
        dlogits = dlogits.astype(dtype)
        dw_ref[...] += _dot(plan, dlogits, p, ((0,), (0,)))
        dp = _dot(plan, dlogits, weight_ref[...], ((1,), (0,)))
        dq_ref[0, t0:t1] = (dp * k.astype(jnp.float32)).astype(dq_ref.dtype)
        dk_ref[0, t0:t1] = (dp * q.astype(jnp.float32)).astype(dk_ref.dtype)
    dv_ref[0] = dpadded_ref[plan.halo : plan.halo + plan.length].astype(dv_ref.dtype)


def _packed(plan, weight, bias, dtype):
    a, h, k = weight.shape
    pads = (0, plan.slots_padded - k), (0, plan.heads_padded - h)
    w = jnp.pad(weight.astype(dtype).transpose(2, 1, 0), (*pads, (0, 0))).reshape(plan.lanes, a)
    b = jnp.pad(bias.astype(jnp.float32).T, ((0, 0), pads[1]))
    b = jnp.pad(b, (pads[0], (0, 0)), constant_values=_EMPTY).reshape(1, plan.lanes)
    return w, b


def _spread(plan, dtype):
    lanes, whole = plan.by_heads
    source, target = jnp.arange(plan.lanes)[:, None], jnp.arange(whole)[None]
    slot, head = source // plan.heads_padded, source % plan.heads_padded
    return ((target == head * lanes + slot) & (slot < plan.slots) & (head < plan.heads)).astype(dtype)


def _windows(plan, segments):
    padded = jnp.pad(segments.astype(jnp.int32), ((0, 0), (plan.halo, plan.window_rows - plan.length - plan.halo)))
    return jnp.stack([padded[:, t0 : t0 + LANES] for t0 in plan.starts], 1)


def _call(kernel, plan, given, rows, outs, scratch, interpret, semantics):
    """given: list of arrays; first axis equal rows -> blocked."""

    def spec(shape, blocked):
        if blocked:
            return pl.BlockSpec((1, *shape[1:]), lambda b: (b, 0, 0))
        return pl.BlockSpec(shape, lambda b: (0, 0))

    return pl.pallas_call(
        kernel,
        grid=(rows,),
        in_specs=[spec(x.shape, x.ndim == 3) for x in given],
        out_specs=[spec(x.shape, len(x.shape) == 3) for x in outs],
        out_shape=outs,
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(dimension_semantics=(semantics,), vmem_limit_bytes=64 * 2**20),
        interpret=interpret,
    )(*given)


def span_convolution(query, key, weight, bias, value, segments=None, *, interpret=False):
    return _convolve(query, key, weight, bias, value, segments, interpret)


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def _convolve(query, key, weight, bias, value, segments, interpret):
    return _forward(query, key, weight, bias, value, segments, interpret)[0]


def _forward(query, key, weight, bias, value, segments, interpret):
    rows, length, width = query.shape
    plan = make_plan(length, width, *weight.shape[1:], query.dtype)
    w, b = _packed(plan, weight, bias, query.dtype)
    given = [query, key, w, b, value, _spread(plan, query.dtype)]
    given += [] if segments is None else [_windows(plan, segments)]
    (out,) = _call(
        functools.partial(_forward_kernel, plan, segments is not None), plan, given, rows,
        [jax.ShapeDtypeStruct(value.shape, value.dtype)],
        [pltpu.VMEM((plan.window_rows, width), jnp.float32)], interpret, "parallel",
    )
    return out, (query, key, weight, bias, value, segments)


def _backward(interpret, saved, g):
    query, key, weight, bias, value, segments = saved
    rows, length, width = query.shape
    _, heads, slots = weight.shape
    plan = make_plan(length, width, heads, slots, query.dtype)
    w, b = _packed(plan, weight, bias, query.dtype)
    given = [query, key, w, b, value, g, _spread(plan, query.dtype)]
    given += [] if segments is None else [_windows(plan, segments)]
    dq, dk, dv, dw, db = _call(
        functools.partial(_backward_kernel, plan, segments is not None), plan, given, rows,
        [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, key, value)]
        + [jax.ShapeDtypeStruct((plan.lanes, width), jnp.float32), jax.ShapeDtypeStruct((1, plan.lanes), jnp.float32)],
        [pltpu.VMEM((plan.window_rows, width), jnp.float32)] * 2, interpret, "arbitrary",
    )
    dw = dw.reshape(plan.slots_padded, plan.heads_padded, width)[:slots, :heads].transpose(2, 1, 0)
    db = db.reshape(plan.slots_padded, plan.heads_padded)[:slots, :heads].T
    return dq, dk, dw.astype(weight.dtype), db.astype(bias.dtype), dv, None


_convolve.defvjp(_forward, _backward)
