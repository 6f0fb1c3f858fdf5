"""Cross-entropy over a large vocabulary, in as few passes over the logits as it takes."""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def cross_entropy(logits_BxMxV: jax.Array, target_BxM: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Float32 logits and int32 targets -> nats [B, M], and whether no logit is above the target's, float32 [B, M].

    The backward pass is written out, (softmax - one-hot) * g in one elementwise pass: autodiff would scatter the
    one-hot into a second array of the logits' size. The same pass over the maximum serves the loss and the accuracy.
    """
    return _forward(logits_BxMxV, target_BxM)[0]


def _forward(logits_BxMxV: jax.Array, target_BxM: jax.Array) -> tuple:
    largest_BxM = logits_BxMxV.max(-1)
    total_BxM = jnp.exp(logits_BxMxV - largest_BxM[..., None]).sum(-1)
    normaliser_BxM = largest_BxM + jnp.log(total_BxM)
    # A sum, not a gather: the vocabulary may lie over several devices, and a sum is one pass wherever it lies.
    chosen_BxM = jnp.where(_is_target(logits_BxMxV, target_BxM), logits_BxMxV, 0).sum(-1)
    is_right_BxM = (chosen_BxM >= largest_BxM).astype(jnp.float32)
    return (normaliser_BxM - chosen_BxM, is_right_BxM), (logits_BxMxV, normaliser_BxM, target_BxM)


def _backward(saved: tuple, gradients: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
    logits_BxMxV, normaliser_BxM, target_BxM = saved
    share_BxMxV = jnp.exp(logits_BxMxV - normaliser_BxM[..., None])
    return (share_BxMxV - _is_target(logits_BxMxV, target_BxM)) * gradients[0][..., None], None


def _is_target(logits_BxMxV: jax.Array, target_BxM: jax.Array) -> jax.Array:
    word_1x1xV = jax.lax.broadcasted_iota(target_BxM.dtype, (1, 1, logits_BxMxV.shape[-1]), 2)
    return word_1x1xV == target_BxM[..., None]


cross_entropy.defvjp(_forward, _backward)
