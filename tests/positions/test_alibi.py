import numpy as np

from posenc_jax.positions.alibi import slopes


def test_slopes_are_the_published_ones():
    """Press et al. 2022: 1/2 ... 1/256 for 8 heads, their geometric means between for 16; 12 fill up from 16's."""
    np.testing.assert_allclose(slopes(8), 0.5 ** np.arange(1, 9), rtol=1e-15)
    np.testing.assert_allclose(slopes(16), 0.5 ** np.arange(0.5, 8.5, 0.5), rtol=1e-15)
    np.testing.assert_allclose(slopes(12), [*slopes(8), *slopes(16)[[0, 2, 4, 6]]], rtol=1e-15)
    np.testing.assert_allclose(slopes(1), [1 / 256], rtol=1e-15)
