"""The convolution heads of a mixed layer: span-based dynamic convolution and its controls (ConvBERT).

Slot j of a window of K looks at the word j - (K - 1) / 2 away. Windows are shifted sums, never a [B, L, A, K] tensor.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.layers import Projection, weights
from posenc_jax.model.dispatch import XLA, convolution_kernel, convolved
from posenc_jax.parallel.mesh import constrain, gathered

BY_HEADS = ("batch", "length", "heads", "head_width")


class Convolution(nn.Module):
    """Input and the layer's unscaled queries -> [B, L, H, d] of the convolution heads (convbert_and_electra.md 1.2).

    span_dynamic  window = softmax(W_f (q * key) + b_f), key a depthwise separable convolution of the input
    dynamic       the same from q alone
    light         softmax of a free window a head
    separable     a depthwise separable convolution is the output; no window
    Weights are not renormalised at the ends: slots outside take their share and give nothing.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BxLxD: jax.Array, q_BxLxHxd: jax.Array, segments_BxL: jax.Array) -> jax.Array:
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        kind, slots = config.convolution.kind, config.convolution.width
        heads, inward = (config.attention_heads, config.head_width), ("embed", "heads", "head_width")
        reaches = within_documents(segments_BxL, slots) if config.convolution.mask else None
        if kind == "separable":
            return SeparableConvolution(config, name="key")(x_BxLxD, reaches)
        value_BxLxHxd = Projection(config, heads, inward, dtype=dtype, name="value")(x_BxLxD)
        value_BxLxHxd = constrain(value_BxLxHxd, *BY_HEADS)
        if kind == "light":
            init = nn.with_logical_partitioning(weights(config), ("heads", "slots"))
            logits_BxLxHxK = self.param("window", init, (heads[0], slots))[None, None]
        else:
            key_BxLxHxd = None
            if kind == "span_dynamic":
                key_BxLxHxd = SeparableConvolution(config, name="key")(x_BxLxD, reaches)
            # All heads' channels make each head's window: not a map within a head.
            window = Projection(
                config, (heads[0], slots), ("heads", "head_width", "heads_out", "slots"), 2, dtype, name="window"
            )
            if not self.is_initializing() and convolution_kernel(config, x_BxLxD.shape[:2]) != XLA:
                segments_BxL = segments_BxL if config.convolution.mask else None
                mixed_BxLxHxd = convolved(
                    q_BxLxHxd, key_BxLxHxd, *window.parameters(heads), value_BxLxHxd, segments_BxL
                )
                return constrain(mixed_BxLxHxd, *BY_HEADS)
            asked_BxLxHxd = q_BxLxHxd if key_BxLxHxd is None else q_BxLxHxd * key_BxLxHxd
            logits_BxLxHxK = constrain(window(asked_BxLxHxd), "batch", "length", "heads", "slots")
        window_BxLxHxK = jax.nn.softmax(logits_BxLxHxK.astype(jnp.promote_types(dtype, jnp.float32))).astype(dtype)
        return constrain(windowed_sum(value_BxLxHxd, window_BxLxHxK[:, :, :, None], reaches), *BY_HEADS)


class SeparableConvolution(nn.Module):
    """A filter of K slots for each channel, then a projection to the heads; one bias, at the end."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BxLxD: jax.Array, reaches: Any) -> jax.Array:
        config, dtype, slots = self.config, jnp.dtype(self.config.dtype), self.config.convolution.width
        init = weights(config)
        if config.init == "truncated_normal":  # the published start, of this filter alone
            init = nn.initializers.truncated_normal(1 / slots)
        filter_KxD = self.param(
            "depthwise", nn.with_logical_partitioning(init, ("slots", "embed")), (slots, config.width)
        )
        filter_KxD = gathered(filter_KxD.astype(dtype), "slots", "embed")
        filtered_BxLxD = windowed_sum(x_BxLxD, jnp.moveaxis(filter_KxD, 0, -1)[None, None], reaches)
        heads, inward = (config.attention_heads, config.head_width), ("embed", "heads", "head_width")
        return constrain(Projection(config, heads, inward, dtype=dtype, name="pointwise")(filtered_BxLxD), *BY_HEADS)


def within_documents(segments_BxL: jax.Array, slots: int) -> list[jax.Array]:
    """For each slot of the window, whether what it looks at is a word of the same document: boolean [B, L]."""
    return [(moved_BxL == segments_BxL) & (segments_BxL > 0) for moved_BxL in _moved(segments_BxL, slots)]


@jax.custom_vjp
def windowed_sum(x: jax.Array, window: jax.Array, reaches: list[jax.Array] | None) -> jax.Array:
    """sum_j window[..., j] * x[:, t + j - (K - 1) / 2], zeros beyond the ends and where `reaches[j]` is False.

    `x` is [B, L, ...]; `window` has one axis more, its last, and broadcasts against x in the others; `reaches` are of
    `within_documents`. K is odd. The backward pass is written out: it keeps x and the window, where autodiff keeps x
    moved and masked, K times.
    """
    slots = window.shape[-1]
    moved, total = _moved(x, slots), jnp.zeros((), x.dtype)
    for slot in range(slots):
        total = total + window[..., slot] * _where(reaches, slot, moved[slot])
    return total


def _windowed_sum_backward(saved: tuple, g: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    x, window, reaches = saved
    slots = window.shape[-1]
    moved_x, moved_g = _moved(x, slots), _moved(g, slots)
    moved_window = [window] * slots if window.shape[1] == 1 else _moved(window, slots)
    shared = tuple(axis for axis, size in enumerate(window.shape[:-1]) if size == 1)
    g_x, g_window = jnp.zeros((), x.dtype), []
    for slot in range(slots):
        back = slots - 1 - slot  # through this one a place is looked at by what it looks at through `slot`
        g_x = g_x + _where(reaches, back, moved_window[back][..., slot] * moved_g[back])
        g_window.append(_where(reaches, slot, g * moved_x[slot]).sum(shared, keepdims=True))
    return g_x, jnp.stack(g_window, -1), None


windowed_sum.defvjp(lambda *arguments: (windowed_sum(*arguments), arguments), _windowed_sum_backward)


def _moved(x: jax.Array, slots: int) -> list[jax.Array]:
    """For each slot of a window, what it looks at from each place: x[:, t + offset] at t, zeros beyond the ends."""
    ends = ((0, 0), (slots // 2, slots // 2), *((0, 0),) * (x.ndim - 2))
    padded = jnp.pad(x, ends)
    return [padded[:, slot : slot + x.shape[1]] for slot in range(slots)]


def _where(reaches: list[jax.Array] | None, slot: int, x: jax.Array) -> jax.Array:
    """`x` [B, L, ...] where a slot reaches a word of the same document, else 0."""
    return x if reaches is None else jnp.where(reaches[slot].reshape(*x.shape[:2], *(1,) * (x.ndim - 2)), x, 0)
