"""Attention with a position bias that all rows of a batch share, and the gradient of that bias.

Neither pass writes a [B, H, L, L]: a row of the batch is worked on whole in VMEM, a block of heads at a time, and the
backward pass makes the weights anew. Rows are the inner axis of the grid, so a bias is fetched once a block of heads,
and its gradient grows where it lies.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from posenc_jax.errors import UsageError
from posenc_jax.kernels.attention_blocks import Form, backward, forward
from posenc_jax.kernels.dropout import LANES, kept_of_256
from posenc_jax.kernels.vmem import USUAL, VMEM

_MIB = 2**20


def biased_attention(
    query_BxLxHxd: jax.Array,
    key_BxLxHxd: jax.Array,
    value_BxLxHxd: jax.Array,
    segments_BxL: jax.Array,
    bias_HxLxL: jax.Array | None = None,
    *,
    table_HxD: jax.Array | None = None,
    dropout: float = 0.0,
    seed_2: jax.Array | None = None,
    rows_B: jax.Array | None = None,
    first_head: jax.Array | int = 0,
    interpret: bool = False,
) -> jax.Array:
    """softmax(q . k + bias) v -> [B, L, H, d] in the values' type; queries come scaled. float32 or bfloat16.

    Segments: 0 is padding; words meet words of their own segment, padding meets every word, and the weights of a row
    without any are even, as in `model.attention`. Softmax, and the gradient of the bias, are in float32.
    `bias_HxLxL`, or `table_HxD` with D = 2 L - 1 entries a head, that of a key and a query at [key - query + L - 1].
    `dropout` of the weights, to the nearest 1/256, is a function of `seed_2` (uint32 [2]), the row's number `rows_B`
    (0, 1, ... by default) and the head's, counted from `first_head`: where rows and heads lie changes nothing.
    Raises `UsageError` with the sentence of `refuses`, and where arguments do not fit each other.
    """
    batch, length, heads, width = query_BxLxHxd.shape
    kind = "matrix" if bias_HxLxL is not None else "table" if table_HxD is not None else "none"
    form = Form(heads, width, length, kind, kept_of_256(dropout), interpret)
    bias = table_HxD if kind == "table" else bias_HxLxL
    _check(form, query_BxLxHxd.dtype, bias, bias_HxLxL is not None and table_HxD is not None)
    if form.kept < 256 and seed_2 is None:
        raise UsageError(f"dropout={dropout} needs seed_2, two random words")

    if kind == "table":
        bias = jnp.pad(bias.astype(jnp.float32), ((0, 0), (0, form.table_width - bias.shape[1])))[:, None]
    seed_2 = jnp.zeros(2, jnp.uint32) if seed_2 is None else seed_2
    first_head_1 = jnp.asarray(first_head, jnp.int32).reshape(1)
    numbers_3 = jnp.concatenate([jax.lax.bitcast_convert_type(seed_2, jnp.int32), first_head_1])
    rows_B = jnp.arange(batch, dtype=jnp.int32) if rows_B is None else rows_B.astype(jnp.int32)
    has_words_B = jnp.any(segments_BxL > 0, axis=1).astype(jnp.int32)
    # Heads beside each other: an array whose last axes are H and d is up to 2.7 times as large, padded to whole tiles.
    flat = (x.reshape(batch, length, heads * width) for x in (query_BxLxHxd, key_BxLxHxd, value_BxLxHxd))
    mixed_BxLxD = _attend(form, *flat, bias, segments_BxL[:, None], (numbers_3, rows_B, has_words_B))
    return mixed_BxLxD.reshape(batch, length, heads, width)


def refuses(
    heads: int, head_width: int, length: int, dtype: Any = jnp.bfloat16, bias: str = "matrix", chip: str | None = None
) -> str | None:
    """Why the kernel does not take this, in a sentence; None where it does. `bias`: "none", "matrix" or "table";
    `chip`: "v4", "v5e", "v5p", "v6e", "tpu7x", or None for any."""
    if jnp.dtype(dtype) not in (jnp.float32, jnp.bfloat16):
        return f"the attention kernel computes in float32 or bfloat16, not {jnp.dtype(dtype)}"
    if head_width % LANES and LANES % head_width:
        return f"the attention kernel takes heads whose width divides 128 or is a multiple of it, not {head_width} wide"
    form = Form(heads, head_width, length, bias)
    needed, there = vmem_bytes(form, dtype), VMEM.get(chip, max(VMEM.values()))
    if needed > there:
        return (
            f"the attention kernel would need {needed // _MIB} MiB of VMEM for length {length} and {form.block_heads} "
            f"heads at a time, and a {chip or 'TPU'} has {there // _MIB}"
        )
    return None


def vmem_bytes(form: Form, dtype: Any) -> int:
    """What the backward pass, the larger one, may use of a core's fast memory: what the grid moves, twice, so that it
    moves while the last block is worked on, and six matrices of logits (measured: four to five)."""
    lanes = -(-form.length // LANES) * LANES
    words = 7 * form.length * max(form.block_width, LANES) * jnp.dtype(dtype).itemsize
    matrices = {"none": 0, "matrix": 4, "table": 2}[form.bias] * form.block_heads + 6
    return 2 * words + 4 * matrices * form.length * lanes


def _check(form: Form, dtype: Any, bias: jax.Array | None, is_double: bool) -> None:
    if is_double:
        raise UsageError(
            "the attention kernel takes a matrix or a table, not both; add the table's matrix to the other"
        )
    if sentence := refuses(form.heads, form.head_width, form.length, dtype, form.bias):
        raise UsageError(sentence)
    shape = (form.heads, form.length, form.length) if form.bias == "matrix" else (form.heads, 2 * form.length - 1)
    if bias is not None and bias.shape != shape:
        raise UsageError(f"a {form.bias} for length {form.length} is {list(shape)}, not {list(bias.shape)}")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
    form: Form,
    q_BxLxD: jax.Array,
    k_BxLxD: jax.Array,
    v_BxLxD: jax.Array,
    bias: jax.Array | None,
    segments_Bx1xL: jax.Array,
    numbers: tuple[jax.Array, ...],
) -> jax.Array:
    return _call(form, forward, [q_BxLxD, k_BxLxD, v_BxLxD], segments_Bx1xL, bias, numbers)[0]


def _attend_forward(form: Form, *arguments: Any) -> tuple:
    return _attend(form, *arguments), arguments


def _attend_backward(form: Form, saved: tuple, g_BxLxD: jax.Array) -> tuple:
    *words, bias, segments_Bx1xL, numbers = saved
    g_q, g_k, g_v, *g_bias = _call(form, backward, [*words, g_BxLxD], segments_Bx1xL, bias, numbers)
    return g_q, g_k, g_v, g_bias[0].astype(bias.dtype) if g_bias else None, None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _call(
    form: Form,
    body: Callable[..., None],
    words: list[jax.Array],
    segments_Bx1xL: jax.Array,
    bias: jax.Array | None,
    numbers: tuple[jax.Array, ...],
) -> list[jax.Array]:
    """Runs one of the two kernels; `numbers` are scalars it reads before its blocks: seed and first head, the rows'
    numbers, and whether a row has a word."""
    batch, length, _ = words[0].shape
    is_backward = body is backward
    of_words = pl.BlockSpec((1, length, form.block_width), lambda block, row, *_: (row, 0, block))
    of_segments = pl.BlockSpec((1, 1, length), lambda block, row, *_: (row, 0, 0))
    of_bias = None
    if bias is not None:
        of_bias = pl.BlockSpec((form.block_heads, *bias.shape[1:]), lambda block, row, *_: (block, 0, 0))
    results, of_results = [jax.ShapeDtypeStruct(words[0].shape, words[0].dtype)], [of_words]
    if is_backward:
        results, of_results = results * 3, of_results * 3
        if bias is not None:
            results, of_results = [*results, jax.ShapeDtypeStruct(bias.shape, jnp.float32)], [*of_results, of_bias]
    matrix = pltpu.VMEM((form.block_heads, length, length), jnp.float32)
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=len(numbers),
        grid=(pl.cdiv(form.heads, form.block_heads), batch),
        in_specs=[of_words] * len(words) + [of_segments] + [of_bias] * (bias is not None),
        out_specs=of_results,
        scratch_shapes=[matrix] * ((1 + is_backward) * (form.bias == "table")),
    )
    call = pl.pallas_call(
        functools.partial(body, form),
        out_shape=results,
        grid_spec=grid,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=max(USUAL, vmem_bytes(form, words[0].dtype)),
        ),
        interpret=form.interpret,
        name=f"biased_attention_{body.__name__}",
    )
    return call(*numbers, *words, segments_Bx1xL, *([bias] if bias is not None else []))
