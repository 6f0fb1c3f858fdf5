import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.positions import Places, Scheme
from tests.variants import small_model


def logits(first, dtype, q, k):
    """[L, L] of the first head of rows of words at positions first, first + 1, ..."""
    scheme = Scheme(small_model("rope", dtype=dtype), "layer")

    @jax.jit
    def turned(position_1xL, *qk):
        places = Places(position_1xL, aligned=False)
        return scheme.apply({}, *qk, places, {"rope": None}, method="queries_and_keys")

    position_1xL = first + jnp.arange(q.shape[1])[None]
    q, k = (np.asarray(x, np.float64) for x in turned(position_1xL, *(jnp.asarray(x, dtype) for x in (q, k))))
    return q[0, :, 0] @ k[0, :, 0].T


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-3), ("bfloat16", 0.01)])
def test_neighbours_at_position_10000_stand_apart_as_at_0(dtype, error):
    """Angles are of float32 even where vectors are not: in bfloat16 positions 9,984 to 10,048 are one."""
    word = np.full((1, 8, 1, 10), 10**-0.5)
    near, far = logits(0, dtype, word, word), logits(10_000, dtype, word, word)
    assert np.abs(near - far).max() < error
    assert (far.diagonal()[:-1] - far.diagonal(1)).min() > 0.08  # a fifth of 1 - cos(1), and more from slower waves


def test_only_differences_matter(rng):
    q, k = (rng.normal(size=(1, 6, 1, 10)) for _ in "qk")
    np.testing.assert_allclose(logits(0, "float32", q, k), logits(21, "float32", q, k), atol=1e-5)


def test_position_0_is_not_turned(rng):
    q, k = (rng.normal(size=(1, 1, 1, 10)).astype(np.float32) for _ in "qk")
    np.testing.assert_allclose(logits(0, "float32", q, k)[0, 0], q[0, 0, 0] @ k[0, 0, 0], rtol=1e-6)
