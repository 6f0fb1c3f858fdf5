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
    chosen_BxM = jnp.take_along_axis(logits_BxMxV, target_BxM[..., None], -1)[..., 0]
    is_right_BxM = (chosen_BxM >= largest_BxM).astype(jnp.float32)
    return (normaliser_BxM - chosen_BxM, is_right_BxM), (logits_BxMxV, normaliser_BxM, target_BxM)


def _backward(saved: tuple, gradients: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
    logits_BxMxV, normaliser_BxM, target_BxM = saved
    word_V = jax.lax.broadcasted_iota(target_BxM.dtype, (1, 1, logits_BxMxV.shape[-1]), 2)
    share_BxMxV = jnp.exp(logits_BxMxV - normaliser_BxM[..., None])
    one_hot_BxMxV = word_V == target_BxM[..., None]
    return (share_BxMxV - one_hot_BxMxV) * gradients[0][..., None], None


cross_entropy.defvjp(_forward, _backward)
