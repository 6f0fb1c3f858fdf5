"""Building blocks with the papers' initialisation and numerics, shared by the model and the position schemes.

Parameters are float32 and carry the logical names of their axes; `parallel.mesh` maps those to devices.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import PartitionSpec

from posenc_jax.config import ModelConfig
from posenc_jax.kernels.dropout import keep_rows, kept_of_256
from posenc_jax.parallel.mesh import first_row, gathered, is_cut


def weights(config: ModelConfig) -> nn.initializers.Initializer:
    """What every weight and table starts from: N(0, init_std^2), whole or cut at two deviations."""
    return getattr(nn.initializers, config.init)(config.init_std)


class Norm(nn.Module):
    """LayerNorm over the last axis in float32, its output in `dtype`; the variance is that of the centred values."""

    config: ModelConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1:]
        scale = self.param("scale", nn.with_logical_partitioning(nn.initializers.ones, ("norm",)), width)
        bias = self.param("bias", nn.with_logical_partitioning(nn.initializers.zeros, ("norm",)), width)
        lead = (1,) * (x.ndim - 1)
        return _norm(x, scale.reshape(*lead, -1), bias.reshape(*lead, -1), self.config.norm_eps, self.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _norm(x: jax.Array, scale: jax.Array, bias: jax.Array, eps: float, dtype: Any) -> jax.Array:
    """Its backward pass is written out: it keeps the input as it came and two numbers a word, where autodiff keeps
    three arrays in float32."""
    return _norm_forward(x, scale, bias, eps, dtype)[0]


def _norm_forward(x: jax.Array, scale: jax.Array, bias: jax.Array, eps: float, dtype: Any) -> tuple:
    exact = at_least_float32(x)
    mean = jnp.mean(exact, -1, keepdims=True)
    centred = exact - mean
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(centred), -1, keepdims=True) + eps)
    return (centred * inverse * scale + bias).astype(dtype), (x, scale, mean, inverse)


def _norm_backward(eps: float, dtype: Any, saved: tuple, g: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, scale, mean, inverse = saved
    g = at_least_float32(g)
    normal = (at_least_float32(x) - mean) * inverse
    rows = _axes(x)[:-1]
    g_normal = g * scale
    straight = jnp.mean(g_normal, -1, keepdims=True) + normal * jnp.mean(g_normal * normal, -1, keepdims=True)
    g_scale, g_bias = (total.sum(rows, keepdims=True) for total in (g * normal, g))
    return (inverse * (g_normal - straight)).astype(x.dtype), g_scale.astype(scale.dtype), g_bias.astype(scale.dtype)


_norm.defvjp(_norm_forward, _norm_backward)


class Projection(nn.Module):
    """Affine map of the last `inputs` axes to `features`; weights from `init` or as all weights start, bias 0."""

    config: ModelConfig
    features: Sequence[int]
    axes: Sequence[str]
    """Logical names of the kernel's axes, inputs first."""
    inputs: int = 1
    dtype: Any = jnp.float32
    init: nn.initializers.Initializer | None = None

    def __call__(self, x: jax.Array) -> jax.Array:
        kernel, bias = self.parameters(x.shape[x.ndim - self.inputs :])
        return affine(x.astype(self.dtype), kernel, bias, self.inputs)

    @nn.compact
    def parameters(self, inputs: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        """Kernel [*inputs, *features] and bias [*features], in `dtype`, for who multiplies with them itself."""
        features = tuple(self.features)
        init = nn.with_logical_partitioning(self.init or weights(self.config), tuple(self.axes))
        kernel = self.param("kernel", init, (*inputs, *features))
        bias_init = nn.with_logical_partitioning(nn.initializers.zeros, tuple(self.axes[self.inputs :]))
        bias = self.param("bias", bias_init, features)
        kernel = gathered(kernel.astype(self.dtype), *self.axes)
        return kernel, gathered(bias.astype(self.dtype), *self.axes[self.inputs :])


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def affine(x: jax.Array, kernel: jax.Array, bias: jax.Array, inputs: int) -> jax.Array:
    """The last `inputs` axes of `x` through `kernel` [*inputs, *features], plus `bias` [*features].

    Multiplied as matrices: of a product [B, L, H, d] a TPU's compiler makes words the last axis, and copies it for a
    kernel. The backward pass is written out for the kernel's gradient: of the two factors the smaller is the one that
    is transposed, where autodiff takes the output's gradient, four times the larger in a feed-forward block.
    """
    x_RxI, kernel_IxF = _as_matrices(x, kernel, inputs)
    y = (x_RxI @ kernel_IxF).reshape(*x.shape[:-inputs], *kernel.shape[inputs:])
    return y + bias.reshape((1,) * (y.ndim - bias.ndim) + bias.shape)


def _affine_forward(x: jax.Array, kernel: jax.Array, bias: jax.Array, inputs: int) -> tuple:
    return affine(x, kernel, bias, inputs), (x, kernel)


def _affine_backward(inputs: int, saved: tuple, g: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, kernel = saved
    x_RxI, kernel_IxF = _as_matrices(x, kernel, inputs)
    g_RxF = g.reshape(*x_RxI.shape[:-1], -1)
    rows = _axes(x_RxI)[:-1]
    a, b = (x_RxI, g_RxF) if x.size <= g.size else (g_RxF, x_RxI)
    g_kernel = jax.lax.dot_general(a, b, ((rows, rows), ((), ())))
    if x.size > g.size:  # the barrier keeps XLA from undoing it: transposed into the product, that takes 1.7 x as long
        g_kernel = jax.lax.optimization_barrier(g_kernel).T
    return (g_RxF @ kernel_IxF.T).reshape(x.shape), g_kernel.reshape(kernel.shape), g.sum(_axes(x)[:-inputs])


affine.defvjp(_affine_forward, _affine_backward)


def _as_matrices(x: jax.Array, kernel: jax.Array, inputs: int) -> tuple[jax.Array, jax.Array]:
    """x [*lead, inputs], kernel [inputs, features]."""
    width = math.prod(kernel.shape[:inputs])
    return x.reshape(*x.shape[:-inputs], width), kernel.reshape(width, -1)


def _axes(x: jax.Array) -> tuple[int, ...]:
    return tuple(range(x.ndim))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def repeated(x: jax.Array, rows: tuple[int, ...]) -> jax.Array:
    """x -> [*rows, *x.shape]: what all rows share, where it is as large as a row, or larger.

    Its gradient is a sum over the rows. XLA's reduction on CPUs (jax 0.10) goes down one column after the other: over
    float32 [32, 4, 128, 128] it takes 60 times as long as a product with ones, which reads the rows as they lie.
    """
    return jnp.broadcast_to(x, (*rows, *x.shape))


def _repeated_backward(rows: tuple[int, ...], _: None, g: jax.Array) -> tuple[jax.Array]:
    axes = _axes(g)[: len(rows)]

    def product(g: jax.Array) -> jax.Array:
        exact = jnp.promote_types(g.dtype, jnp.float32)
        ones = jnp.ones(rows, g.dtype)
        return jax.lax.dot_general(ones, g, ((axes, axes), ((), ())), preferred_element_type=exact).astype(g.dtype)

    return (jax.lax.platform_dependent(g, cpu=product, default=lambda g: g.sum(axes)),)


repeated.defvjp(lambda x, rows: (repeated(x, rows), None), _repeated_backward)


class Dropout(nn.Module):
    """Keeps each value with probability 1 - rate, to the nearest 1/256, and scales it by the inverse of that.

    What is kept depends on the row's number in the batch and the place in the row: the same on every mesh, wherever
    the row lies, and in the kernels. Rows have at most three axes.
    """

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        kept = kept_of_256(self.rate)
        if not train or kept == 256:
            return x
        return _drop(x, self.seed(), row_numbers(len(x)), kept)

    def seed(self) -> jax.Array:
        """Two random words, uint32 [2]: what is kept is a function of them."""
        return jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _drop(x: jax.Array, seed_2: jax.Array, rows_B: jax.Array, kept: int) -> jax.Array:
    """The backward pass draws again: nothing is kept for it."""
    is_kept = keep_rows(seed_2, rows_B, kept, x.shape[1:])
    scaled = (at_least_float32(x) * (256 / max(kept, 1))).astype(x.dtype)  # the factor is no bfloat16
    return jnp.where(is_kept, scaled, jnp.zeros((), x.dtype))


def _drop_forward(x: jax.Array, seed_2: jax.Array, rows_B: jax.Array, kept: int) -> tuple:
    return _drop(x, seed_2, rows_B, kept), (seed_2, rows_B)


_drop.defvjp(_drop_forward, lambda kept, saved, g: (_drop(g, *saved, kept), None, None))


def row_numbers(rows: int) -> jax.Array:
    """Numbers in the batch of the `rows` that this part of a computation holds."""
    return first_row(rows) + jnp.arange(rows)


def lookup(table_VxE: jax.Array, ids: jax.Array) -> jax.Array:
    """The rows [*ids, E] with these numbers of a table whose rows lie over "tensor": each device adds those it holds.

    XLA cannot always partition a gather along an axis that is cut, so it is written out, and its gradient with it.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not is_cut(mesh, "tensor") or table_VxE.shape[0] % mesh.shape["tensor"]:
        return table_VxE[ids]
    return _cut_lookup(table_VxE, ids)


@jax.custom_vjp
def _cut_lookup(table_VxE: jax.Array, ids: jax.Array) -> jax.Array:
    def local(part_VxE: jax.Array, ids: jax.Array) -> jax.Array:
        mine = _numbers_within(part_VxE.shape[0], ids)
        rows = part_VxE.at[mine].get(mode="fill", fill_value=0)
        return jax.lax.psum(rows, "tensor")

    whole, rows = PartitionSpec(), PartitionSpec("tensor")
    return jax.shard_map(local, in_specs=(rows, whole), out_specs=whole, axis_names={"tensor"}, check_vma=False)(
        table_VxE, ids
    )


def _cut_lookup_forward(table_VxE: jax.Array, ids: jax.Array) -> tuple:
    return _cut_lookup(table_VxE, ids), (table_VxE[:, :0], ids)  # of the table its rows and type are all that is asked


def _cut_lookup_backward(saved: tuple, g: jax.Array) -> tuple[jax.Array, None]:
    def local(part_Vx0: jax.Array, ids: jax.Array, g: jax.Array) -> jax.Array:
        rows = part_Vx0.shape[0]
        zeros_VxE = jnp.zeros((rows, g.shape[-1]), part_Vx0.dtype)
        return zeros_VxE.at[_numbers_within(rows, ids)].add(g, mode="drop")

    whole, rows = PartitionSpec(), PartitionSpec("tensor")
    scatter = jax.shard_map(
        local, in_specs=(rows, whole, whole), out_specs=rows, axis_names={"tensor"}, check_vma=False
    )
    return scatter(*saved, g), None


_cut_lookup.defvjp(_cut_lookup_forward, _cut_lookup_backward)


def _numbers_within(rows: int, ids: jax.Array) -> jax.Array:
    """Numbers among the `rows` that this device holds; `rows`, which is none of them, for what others hold."""
    mine = ids - jax.lax.axis_index("tensor") * rows
    return jnp.where((mine >= 0) & (mine < rows), mine, rows)


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """x * Phi(x) by the error function, in float32: the exact form, not the tanh approximation.

    For the backward pass it keeps `x` as it came, where autodiff keeps three arrays in float32.
    """
    exact = at_least_float32(x)
    return (exact * _normal_cdf(exact)).astype(x.dtype)


def _gelu_backward(x: jax.Array, g: jax.Array) -> tuple[jax.Array]:
    exact = at_least_float32(x)
    density = jnp.exp(-0.5 * jnp.square(exact)) * (2 * math.pi) ** -0.5
    return ((at_least_float32(g) * (_normal_cdf(exact) + exact * density)).astype(x.dtype),)


gelu.defvjp(lambda x: (gelu(x), x), _gelu_backward)


def _normal_cdf(x: jax.Array) -> jax.Array:
    return 0.5 * (1 + jax.lax.erf(x * 2**-0.5))


def at_least_float32(x: jax.Array) -> jax.Array:
    """Half precision made float32; float64, of the checks, stays."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
