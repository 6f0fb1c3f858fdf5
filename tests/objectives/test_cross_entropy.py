import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax

from posenc_jax.objectives.cross_entropy import cross_entropy


def test_loss_gradient_and_accuracy_equal_float64(rng):
    logits = rng.normal(0, 5, (3, 4, 37)) + 300
    target = rng.integers(0, 37, (3, 4))
    target[0, 0] = logits[0, 0].argmax()
    weight = rng.normal(size=(3, 4))
    low = jnp.asarray(logits, jnp.float32)
    loss, is_right = cross_entropy(low, jnp.asarray(target))
    logits = np.asarray(low, np.float64)
    want = -np.take_along_axis(log_softmax(logits, -1), target[..., None], -1)[..., 0]
    np.testing.assert_allclose(loss, want, atol=1e-4)
    np.testing.assert_array_equal(is_right, logits.argmax(-1) == target)
    gradient = jax.grad(lambda x: (cross_entropy(x, jnp.asarray(target))[0] * weight).sum())(low)
    one_hot = np.eye(37)[target]
    np.testing.assert_allclose(gradient, (np.exp(log_softmax(logits, -1)) - one_hot) * weight[..., None], atol=2e-5)
