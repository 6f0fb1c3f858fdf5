"""Which program a layer's words are mixed by, XLA's or a kernel: one table, asked while a step is traced."""

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AxisType, PartitionSpec

from posenc_jax.config import ModelConfig
from posenc_jax.kernels import biased_attention as biased
from posenc_jax.kernels import span_convolution as span
from posenc_jax.layers import row_numbers
from posenc_jax.parallel.chips import chip_of
from posenc_jax.parallel.distributed import is_first
from posenc_jax.parallel.mesh import BATCH_AXES

XLA = "xla"
KERNELS = {
    ("tpu", "attention"): "pallas",
    ("tpu", "span convolution"): "pallas",
}
"""Platform and work -> the kernel, where there is one and it does not refuse; `attention_kernel` and
`convolution_kernel` know when it does."""


def attention_kernel(
    config: ModelConfig, shape: tuple[int, int], *, has_bias: bool, reasons: Sequence[str | None] = ()
) -> str:
    """The kernel, or `XLA`, for attention over rows of `shape` (B, L) with one bias for all rows or none. `reasons`
    (None: no reason) speak against it."""
    heads, bias = _local(config.attention_heads), "matrix" if has_bias else "none"
    refusal = biased.refuses(heads, config.head_width, shape[1], config.dtype, bias, _chip())
    return _choice(config, "attention", (*reasons, _lies_badly(shape[0]), refusal))


def convolution_kernel(config: ModelConfig, shape: tuple[int, int]) -> str:
    """The kernel, or `XLA`, for the convolution heads over rows of `shape` (B, L)."""
    kind, heads = config.convolution.kind, _local(config.attention_heads)
    other = None if kind == "span_dynamic" else f"model.convolution.kind={kind!r} has none"
    if heads != config.attention_heads:
        # The window of a head is made from the channels of all heads.
        other = f"mesh.tensor={config.attention_heads // heads} cuts the channels that make a window"
    width, slots = config.head_width, config.convolution.width
    refusal = span.refuses(heads, width, slots, shape[1], config.dtype, _chip())
    return _choice(config, "span convolution", (other, _lies_badly(shape[0]), refusal))


def mixed_by_attention(
    q_BxLxHxd: jax.Array,
    k_BxLxHxd: jax.Array,
    v_BxLxHxd: jax.Array,
    segments_BxL: jax.Array,
    bias_HxLxL: jax.Array | None,
    dropout: float,
    seed_2: jax.Array | None,
) -> jax.Array:
    """What `model.attention` computes of scaled queries, by the Pallas kernel; each device its rows and heads."""
    is_cut = "tensor" in _automatic()

    def local(q, k, v, segments, bias, rows, seed) -> jax.Array:
        first_head = jax.lax.axis_index("tensor") * q.shape[2] if is_cut else 0
        return biased.biased_attention(
            q, k, v, segments, bias,
            dropout=dropout, seed_2=seed, rows_B=rows, first_head=first_head, interpret=_interpreted(),
        )  # fmt: skip

    of_words, of_rows = ("batch", None, "heads", None), ("batch",)
    axes = (of_words, of_words, of_words, of_rows, ("heads",), of_rows, ())
    numbers_B = row_numbers(len(segments_BxL))
    return _where_they_lie(local, axes, of_words)(
        q_BxLxHxd, k_BxLxHxd, v_BxLxHxd, segments_BxL, bias_HxLxL, numbers_B, seed_2
    )


def convolved(
    q_BxLxHxd: jax.Array,
    key_BxLxHxd: jax.Array,
    kernel_HxdxHxK: jax.Array,
    bias_HxK: jax.Array,
    value_BxLxHxd: jax.Array,
    segments_BxL: jax.Array | None,
) -> jax.Array:
    """What `model.convolution` computes with span-dynamic windows, by the Pallas kernel; each device its rows."""

    def local(q, key, kernel, bias, value, segments) -> jax.Array:
        flat = (x.reshape(*x.shape[:2], -1) for x in (q, key, value))
        query_BxLxA, key_BxLxA, value_BxLxA = flat
        weight_AxHxK = kernel.reshape(-1, *kernel.shape[2:])
        mixed_BxLxA = span.span_convolution(
            query_BxLxA, key_BxLxA, weight_AxHxK, bias, value_BxLxA, segments, interpret=_interpreted()
        )
        return mixed_BxLxA.reshape(value.shape)

    of_rows = ("batch",)
    axes = (of_rows, of_rows, (), (), of_rows, of_rows)
    return _where_they_lie(local, axes, of_rows)(
        q_BxLxHxd, key_BxLxHxd, kernel_HxdxHxK, bias_HxK, value_BxLxHxd, segments_BxL
    )


# ---- the choice ---------------------------------------------------------------------------------------------------


def _choice(config: ModelConfig, work: str, reasons: Sequence[str | None]) -> str:
    platform, _ = _device()
    if config.kernels == XLA:
        return XLA
    kernel = KERNELS.get((platform, work))
    if config.kernels == "pallas":
        kernel = "pallas" if platform in ("cpu", "tpu") else None  # on a CPU interpreted: slow, and exact
        if kernel is None:
            _say(f"{work} runs by XLA: there is no kernel of it for {platform}")
    if kernel is None:
        return XLA
    if reason := next(filter(None, reasons), None):
        _say(f"{work} runs by XLA, not by the {kernel} kernel: {reason}")
        return XLA
    return kernel


def _lies_badly(rows: int) -> str | None:
    """Why a kernel cannot stand here, however it is called."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty and len(jax.devices()) > 1:
        return "several devices are here, and this computation names no mesh"
    automatic = _automatic()
    parts = math.prod(automatic.get(axis, 1) for axis in BATCH_AXES)
    return f"{rows} rows do not divide over {parts} devices" if rows % parts else None


@functools.cache
def _say(sentence: str) -> None:
    """Once in a run."""
    if is_first():
        print(sentence, file=sys.stderr)


def _device() -> tuple[str, str]:
    """Platform and kind of the devices that the computation is traced for: the mesh's, else those that are here."""
    mesh = jax.sharding.get_abstract_mesh()
    device = getattr(mesh, "abstract_device", None)
    if mesh.empty or device is None:
        device = jax.devices()[0]
    return device.platform, device.device_kind


def _chip() -> str | None:
    chip = chip_of(_device()[1])
    return chip.name if chip else None


def can_be_written_out() -> bool:
    """Whether layers may stand one after the other in the program. Each is then a call of one function, in which XLA
    for TPU (libtpu 0.0.42) takes the parts of a kernel for those of a whole batch where the computation is itself a
    part along "data", and ends its process."""
    mesh = jax.sharding.get_abstract_mesh()
    is_part = AxisType.Manual in mesh.axis_types
    return not (is_part and math.prod(_automatic().values()) > 1 and _device()[0] == "tpu")


def _interpreted() -> bool:
    return _device()[0] == "cpu"


# ---- the mesh -----------------------------------------------------------------------------------------------------


def _automatic() -> dict[str, int]:
    """Axes of the mesh that are the compiler's here, and their sizes; none on one device. It cannot cut a kernel, so
    that these are taken over."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size == 1:
        return {}
    kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return {axis: mesh.shape[axis] for axis, kind in kinds if kind == AxisType.Auto}


def _local(heads: int) -> int:
    tensor = _automatic().get("tensor", 1)
    return heads // tensor if heads % tensor == 0 else heads


def _where_they_lie(function: Callable, axes: tuple[tuple, ...], result: tuple) -> Callable:
    """`function` on each device's part of arguments whose axes have these names; an argument may be None."""
    automatic = _automatic()
    if not automatic:
        return function
    lies = {"batch": tuple(axis for axis in BATCH_AXES if axis in automatic) or None, "heads": "tensor"}
    specs = [PartitionSpec(*(lies.get(name) for name in names)) for names in axes]
    out = PartitionSpec(*(lies.get(name) for name in result))

    def call(*arguments: Any) -> jax.Array:
        there = [number for number, argument in enumerate(arguments) if argument is not None]

        def some(*given: jax.Array) -> jax.Array:
            whole: list[Any] = [None] * len(arguments)
            for number, argument in zip(there, given, strict=True):
                whole[number] = argument
            return function(*whole)

        local = jax.shard_map(
            some,
            in_specs=tuple(specs[number] for number in there),
            out_specs=out,
            axis_names=set(automatic),
            check_vma=False,
        )
        return local(*(arguments[number] for number in there))

    return call
