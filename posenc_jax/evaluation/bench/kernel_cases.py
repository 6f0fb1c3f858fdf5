"""What `bench kernels` compiles: our kernels and the plain paths they stand for, at the papers' base sizes."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.kernels.biased_attention import biased_attention
from posenc_jax.kernels.span_convolution import span_convolution
from posenc_jax.layers import affine
from posenc_jax.model.attention import MASKED
from posenc_jax.model.convolution import windowed_sum, within_documents

Shape = tuple[tuple[int, ...], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A function and its gradients, once as a kernel and once plainly, at one size."""

    name: str
    minimum: int
    """Bytes: what the forward pass and then the backward pass are given and return, each read or written once."""
    kernel: Callable
    kernel_inputs: Sequence[Shape]
    """Those with gradients first; integers have none. The first one's shape is the output's. Each side has its arrays
    as it takes them without a copy: the kernels [B, L, H d], the plain path [B, L, H, d]."""
    plain: Callable | None = None
    plain_inputs: Sequence[Shape] = ()


def convolution_case(rows: int, packed: bool) -> Case:
    """ConvBERT base: 6 heads of 64, windows of 9, rows of 512."""
    length, heads, size, slots = 512, 6, 64, 9
    flat, by_heads = (rows, length, heads * size), (rows, length, heads, size)
    segments = [((rows, length), jnp.int32)] * packed
    bias = ((heads, slots), jnp.bfloat16)

    def inputs(x: tuple[int, ...], weight: tuple[int, ...]) -> list[Shape]:
        return [*[(x, jnp.bfloat16)] * 3, (weight, jnp.bfloat16), bias, *segments]

    return Case(
        f"span-dynamic convolution, {rows} x 512{', segments' * packed}",
        11 * rows * length * heads * size * 2,
        lambda q, k, v, w, b, *s: span_convolution(q, k, w, b, v, *s),
        inputs(flat, (heads * size, heads, slots)),
        _plain_convolution,
        inputs(by_heads, (heads, size, heads, slots)),
    )


def _plain_convolution(q_BxLxHxd, k_BxLxHxd, v_BxLxHxd, weight, bias, segments_BxL=None):
    """As `model.convolution.Convolution` does it."""
    logits_BxLxHxK = affine(q_BxLxHxd * k_BxLxHxd, weight, bias, 2)
    window_BxLxHxK = jax.nn.softmax(logits_BxLxHxK.astype(jnp.float32)).astype(q_BxLxHxd.dtype)
    reaches = None if segments_BxL is None else within_documents(segments_BxL, bias.shape[-1])
    return windowed_sum(v_BxLxHxd, window_BxLxHxK[:, :, :, None], reaches)


def attention_case(form: str, dropout: float = 0.0) -> Case:
    """BERT base, 32 rows of 512, the bias of each head a matrix or a table by distance."""
    rows, length, heads, size = 32, 512, 12, 64
    flat, by_heads = (rows, length, heads * size), (rows, length, heads, size)
    bias = (heads, length, length) if form == "matrix" else (heads, 2 * length - 1)

    def inputs(x: tuple[int, ...]) -> list[Shape]:
        seed = [((2,), jnp.uint32)] if dropout else []
        return [*[(x, jnp.bfloat16)] * 3, (bias, jnp.float32), ((rows, length), jnp.int32), *seed]

    def kernel(q_BxLxA, k_BxLxA, v_BxLxA, bias, segments_BxL, seed_2=None):
        q, k, v = (x_BxLxA.reshape(by_heads) for x_BxLxA in (q_BxLxA, k_BxLxA, v_BxLxA))
        given = {"bias_HxLxL": bias} if form == "matrix" else {"table_HxD": bias}
        return biased_attention(q, k, v, segments_BxL, **given, dropout=dropout, seed_2=seed_2).reshape(flat)

    return Case(
        f"attention, bias a {form}, 32 x 512{', dropout' if dropout else ''}",
        11 * rows * length * heads * size * 2 + 3 * math.prod(bias) * 4,
        kernel,
        inputs(flat),
        None if dropout else {"matrix": _plain_attention, "table": _plain_attention_by_distance}[form],
        inputs(by_heads),
    )


def _plain_attention(q_BxLxHxd, k_BxLxHxd, v_BxLxHxd, bias_HxLxL, segments_BxL):
    """As `model.attention.Attention` does it."""
    logits = jnp.einsum("BQHd,BKHd->BHQK", q_BxLxHxd, k_BxLxHxd, preferred_element_type=jnp.float32) + bias_HxLxL[None]
    own_BxLx1, other_Bx1xL = segments_BxL[:, :, None], segments_BxL[:, None, :]
    may_meet = ((own_BxLx1 == other_Bx1xL) | (own_BxLx1 == 0)) & (other_Bx1xL > 0)
    weights = jax.nn.softmax(logits + jnp.where(may_meet, 0.0, MASKED)[:, None])
    return jnp.einsum("BHQK,BKHd->BQHd", weights.astype(v_BxLxHxd.dtype), v_BxLxHxd)


def _plain_attention_by_distance(q_BxLxHxd, k_BxLxHxd, v_BxLxHxd, table_HxD, segments_BxL):
    length = q_BxLxHxd.shape[1]
    distance_LxL = jnp.arange(length)[None] - jnp.arange(length)[:, None] + length - 1
    return _plain_attention(q_BxLxHxd, k_BxLxHxd, v_BxLxHxd, table_HxD[:, distance_LxL], segments_BxL)


CASES: dict[str, Callable[[], list[Case]]] = {
    "convolution": lambda: [convolution_case(32, False), convolution_case(32, True), convolution_case(128, False)],
    "attention": lambda: [attention_case("matrix"), attention_case("table"), attention_case("matrix", dropout=0.1)],
}
