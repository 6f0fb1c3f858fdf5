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
    heads_padded: int
    head_rows: int
    precision: jax.lax.Precision | None

    @property
    def first(self) -> int:
        return self.halo - self.slots // 2

    @property
    def logit_rows(self) -> int:
        return self.slots * self.heads_padded

    @property
    def blocks(self) -> int:
        return -(-self.heads * self.head_rows // LANES)

    @property
    def starts(self) -> range:
        return range(0, self.length, self.rows)

    @property
    def padded_length(self) -> int:
        return self.starts[-1] + LANES

    def place(self, head) -> tuple[int, int]:
        return divmod(head * self.head_rows, LANES)


def make_plan(length, width, heads, slots, dtype) -> Plan:
    halo = max(8, -(-(slots // 2) // 8) * 8)
    precision = jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None
    head_rows = max(16, 1 << (halo + slots // 2).bit_length())
    return Plan(length, width, heads, slots, halo, LANES - 2 * halo, -(-heads // 8) * 8, head_rows, precision)


def _dot(plan, a, b, axes):
    return jax.lax.dot_general(a, b, (axes, ((), ())), precision=plan.precision, preferred_element_type=jnp.float32)


def _skewed(x, sign):
    """Column t rolled by sign * t rows."""
    columns = x.shape[1]
    column = jax.lax.broadcasted_iota(jnp.int32, (1, columns), 1)
    bit = 1
    while bit < columns:
        x = jnp.where(column & bit != 0, pltpu.roll(x, sign * bit % LANES, 0), x)
        bit *= 2
    return x


def _and(x, mask):
    if x.dtype == jnp.float32:
        return pltpu.bitcast(pltpu.bitcast(x, jnp.uint32) & mask, jnp.float32)
    return pltpu.bitcast(pltpu.bitcast(x, jnp.uint32) & pltpu.bitcast(mask, jnp.uint32), x.dtype)


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
    rest = plan.padded_length - plan.halo - plan.length
    padded_ref[plan.halo + plan.length :] = jnp.zeros((rest, plan.width), padded_ref.dtype)


def _seen(plan, padded_ref, t0, start, end, head):
    """Rolled down by the head's offset, [128, end-start]."""
    _, at = plan.place(head)
    if not at:
        return padded_ref[t0 : t0 + LANES, start:end]
    return jnp.concatenate(
        [padded_ref[t0 + LANES - at : t0 + LANES, start:end], padded_ref[t0 : t0 + LANES - at, start:end]], 0
    )


def _reaches(plan, windows_ref, index, rows):
    if windows_ref is None:
        return None
    seen = windows_ref[0, index : index + 1]
    seen = [pltpu.roll(seen, -(plan.first + slot) % LANES, 1)[:, :rows] for slot in range(plan.slots)]
    own = seen[plan.slots // 2]
    mask = [((s == own) & (own > 0)).astype(jnp.float32) for s in seen]
    return jnp.concatenate([jnp.broadcast_to(m, (plan.heads_padded, rows)) for m in mask], 0)


def _softmax(plan, logits):
    parts = [logits[at : at + plan.heads_padded] for at in range(0, plan.logit_rows, plan.heads_padded)]
    most = functools.reduce(jnp.maximum, parts)
    powers = [jnp.exp(part - most) for part in parts]
    inverse = 1 / sum(powers)
    return jnp.concatenate([power * inverse for power in powers], 0)


def _softmax_backward(plan, window, dwindow):
    weighted = window * dwindow
    total = sum(weighted[at : at + plan.heads_padded] for at in range(0, plan.logit_rows, plan.heads_padded))
    return weighted - window * jnp.concatenate([total] * plan.slots, 0)


def _weights(plan, q, k, weight_ref, bias_ref):
    p = q * k
    logits = _dot(plan, weight_ref[...], p, ((1,), (1,))) + bias_ref[:, : q.shape[0]]
    return p, _softmax(plan, logits)


def _skew_blocks(plan, window, spread_ref, reaches, dtype):
    """[128, rows] f32 a block"""
    window = window if reaches is None else window * reaches
    window = window.astype(dtype)
    return [
        _skewed(_dot(plan, spread_ref[at : at + LANES], window, ((1,), (0,))), 1)
        for at in range(0, plan.blocks * LANES, LANES)
    ]


def _forward_kernel(plan, has_segments, q_ref, k_ref, weight_ref, bias_ref, v_ref, spread_ref, masks_ref, *rest):
    windows_ref, (o_ref, padded_ref) = (rest[0], rest[1:]) if has_segments else (None, rest)
    dtype = q_ref.dtype
    _fill(plan, v_ref, padded_ref)
    for index, t0 in enumerate(plan.starts):
        t1 = min(t0 + plan.rows, plan.length)
        rows = t1 - t0
        reaches = _reaches(plan, windows_ref, index, rows)
        _, window = _weights(plan, q_ref[0, t0:t1], k_ref[0, t0:t1], weight_ref, bias_ref)
        skewed = [x.T.astype(dtype) for x in _skew_blocks(plan, window, spread_ref, reaches, dtype)]
        bands = [_and(skewed[plan.place(h)[0]], masks_ref[h * LANES : h * LANES + rows]) for h in range(plan.heads)]
        for start, end, heads in _blocks(plan):
            out = None
            for h in heads:
                of_h = _dot(plan, bands[h], _seen(plan, padded_ref, t0, start, end, h), ((1,), (0,)))
                out = of_h if out is None else jnp.where(_of_head(plan, h, start, end), of_h, out)
            o_ref[0, t0:t1, start:end] = out.astype(o_ref.dtype)


def _backward_kernel(plan, has_segments, q_ref, k_ref, weight_ref, bias_ref, v_ref, g_ref, spread_ref, masks_ref, *rest):
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
        rows = t1 - t0
        q, k = q_ref[0, t0:t1], k_ref[0, t0:t1]
        reaches = _reaches(plan, windows_ref, index, rows)
        p, window = _weights(plan, q, k, weight_ref, bias_ref)
        skewed = [x.astype(dtype) for x in _skew_blocks(plan, window, spread_ref, reaches, dtype)]
        masks = [masks_ref[h * LANES : (h + 1) * LANES, :rows] for h in range(plan.heads)]
        bands = [_and(skewed[plan.place(h)[0]], masks[h]) for h in range(plan.heads)]
        scores = [None] * plan.heads
        for start, end, heads in _blocks(plan):
            g = g_ref[0, t0:t1, start:end]
            dv = None
            for h in heads:
                mine = _of_head(plan, h, start, end)
                seen = _seen(plan, padded_ref, t0, start, end, h)
                score = _dot(plan, jnp.where(mine, seen, jnp.zeros_like(seen)), g, ((1,), (1,)))
                scores[h] = score if scores[h] is None else scores[h] + score
                of_h = _dot(plan, bands[h], g, ((1,), (0,)))
                _, at = plan.place(h)
                of_h = pltpu.roll(of_h, LANES - at, 0) if at else of_h
                dv = of_h if dv is None else jnp.where(mine, of_h, dv)
            dpadded_ref[t0 : t0 + LANES, start:end] += dv
        dwindow = None
        for block in range(plan.blocks):
            skewed = jnp.zeros((LANES, rows), jnp.float32)
            for h in range(plan.heads):
                if plan.place(h)[0] == block:
                    skewed = jnp.where(_owner(plan, rows) == plan.place(h)[1] // plan.head_rows, scores[h], skewed)
            straight = _skewed(skewed, -1)
            spread = spread_ref[block * LANES : (block + 1) * LANES]
            high = straight.astype(dtype)
            part = _dot(plan, spread, high, ((0,), (0,)))
            if dtype != jnp.float32:
                part += _dot(plan, spread, (straight - high.astype(jnp.float32)).astype(dtype), ((0,), (0,)))
            dwindow = part if dwindow is None else dwindow + part
        dwindow = dwindow if reaches is None else dwindow * reaches
        dlogits = _softmax_backward(plan, window, dwindow)
        db_ref[:, :rows] += dlogits
        dlogits = dlogits.astype(dtype)
        dw_ref[...] += _dot(plan, dlogits, p, ((1,), (0,)))
        dp = _dot(plan, dlogits, weight_ref[...], ((0,), (0,)))
        dq_ref[0, t0:t1] = (dp * k.astype(jnp.float32)).astype(dq_ref.dtype)
        dk_ref[0, t0:t1] = (dp * q.astype(jnp.float32)).astype(dk_ref.dtype)
    dv_ref[0] = dpadded_ref[plan.halo : plan.halo + plan.length].astype(dv_ref.dtype)


def _owner(plan, rows):
    row = jax.lax.broadcasted_iota(jnp.int32, (LANES, rows), 0)
    column = jax.lax.broadcasted_iota(jnp.int32, (LANES, rows), 1)
    return ((row - column) & (LANES - 1)) // plan.head_rows


def _packed(plan, weight, bias, dtype):
    a, h, k = weight.shape
    w = jnp.pad(weight.astype(dtype).transpose(2, 1, 0), ((0, 0), (0, plan.heads_padded - h), (0, 0)))
    b = jnp.pad(bias.astype(jnp.float32).T, ((0, 0), (0, plan.heads_padded - h))).reshape(plan.logit_rows, 1)
    return w.reshape(plan.logit_rows, a), jnp.broadcast_to(b, (plan.logit_rows, LANES))


def _spread(plan, dtype):
    """[blocks * 128, logit_rows]"""
    target, source = jnp.arange(plan.blocks * LANES)[:, None], jnp.arange(plan.logit_rows)[None]
    slot, head = source // plan.heads_padded, source % plan.heads_padded
    return ((target == head * plan.head_rows + (slot + plan.first)) & (head < plan.heads)).astype(dtype)


def _masks(plan, dtype, transposed):
    """[heads * 128, 128] ints, all ones at the places of the head's band: [window, row] or [row, window]"""
    kind = jnp.uint32 if dtype == jnp.float32 else jnp.uint16
    window, row = jnp.arange(LANES)[:, None], jnp.arange(LANES)[None]
    owner = ((window - row) % LANES) // plan.head_rows
    owner = owner if transposed else owner.T
    return jnp.concatenate([
        jnp.where(owner == plan.place(h)[1] // plan.head_rows, kind(jnp.iinfo(kind).max), kind(0))
        for h in range(plan.heads)
    ])


def _windows(plan, segments):
    padded = jnp.pad(segments.astype(jnp.int32), ((0, 0), (plan.halo, plan.padded_length - plan.length - plan.halo)))
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
    given = [query, key, w, b, value, _spread(plan, query.dtype), _masks(plan, query.dtype, False)]
    given += [] if segments is None else [_windows(plan, segments)]
    (out,) = _call(
        functools.partial(_forward_kernel, plan, segments is not None), plan, given, rows,
        [jax.ShapeDtypeStruct(value.shape, value.dtype)],
        [pltpu.VMEM((plan.padded_length, width), query.dtype)], interpret, "parallel",
    )
    return out, (query, key, weight, bias, value, segments)


def _backward(interpret, saved, g):
    query, key, weight, bias, value, segments = saved
    rows, length, width = query.shape
    _, heads, slots = weight.shape
    plan = make_plan(length, width, heads, slots, query.dtype)
    w, b = _packed(plan, weight, bias, query.dtype)
    given = [query, key, w, b, value, g, _spread(plan, query.dtype), _masks(plan, query.dtype, True)]
    given += [] if segments is None else [_windows(plan, segments)]
    dq, dk, dv, dw, db = _call(
        functools.partial(_backward_kernel, plan, segments is not None), plan, given, rows,
        [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, key, value)]
        + [jax.ShapeDtypeStruct((plan.logit_rows, width), jnp.float32), jax.ShapeDtypeStruct((plan.logit_rows, LANES), jnp.float32)],
        [pltpu.VMEM((plan.padded_length, width), query.dtype), pltpu.VMEM((plan.padded_length, width), jnp.float32)], interpret, "arbitrary",
    )
    dw = dw.reshape(slots, plan.heads_padded, width)[:, :heads].transpose(2, 1, 0)
    db = db.sum(1).reshape(slots, plan.heads_padded)[:, :heads].T
    return dq, dk, dw.astype(weight.dtype), db.astype(bias.dtype), dv, None


_convolve.defvjp(_forward, _backward)
