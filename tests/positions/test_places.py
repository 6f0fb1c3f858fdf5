import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.positions import Places


@functools.partial(jax.jit, static_argnames=("method", "aligned"))
def ask(position_BxL, argument, *options, method, aligned):
    return getattr(Places(position_BxL, aligned), method)(argument, *options)


def clipped(position, i, j, clip):
    return int(np.clip(position[j] - position[i], -clip, clip)) + clip


CASES = [(length, clip) for length in (1, 2, 7) for clip in (1, 5, 6, 7, 9)]
"""The row shorter than the clip, as long, and longer; and one word alone."""


@pytest.mark.parametrize(("length", "clip"), CASES)
def test_spread_reads_and_gather_sums_what_explicit_loops_do(length, clip, rng):
    for aligned in (True, False):
        position_BxL = np.stack([np.arange(length)] * 2 if aligned else [rng.permutation(20)[:length] for _ in "ab"])
        scores_BxHxLxC = rng.normal(size=(2, 3, length, 2 * clip + 1)).astype(np.float32)
        weights_BxHxLxL = rng.normal(size=(2, 3, length, length)).astype(np.float32)
        spread, gathered = np.zeros((2, 3, length, length)), np.zeros_like(scores_BxHxLxC, np.float64)
        for b, i, j in np.ndindex(2, length, length):
            at = clipped(position_BxL[b], i, j, clip)
            spread[b, :, i, j] = scores_BxHxLxC[b, :, i, at]
            gathered[b, :, i, at] += weights_BxHxLxL[b, :, i, j]
        got = ask(jnp.asarray(position_BxL), scores_BxHxLxC, method="spread", aligned=aligned)
        np.testing.assert_array_equal(got, spread.astype(np.float32))
        gather = functools.partial(jax.jit, static_argnums=2)(lambda p, w, c, a=aligned: Places(p, a).gather(w, c))
        np.testing.assert_allclose(gather(jnp.asarray(position_BxL), weights_BxHxLxL, clip), gathered, atol=1e-6)


def test_one_row_of_positions_serves_all_rows(rng):
    scores_BxHxLxC = rng.normal(size=(3, 2, 5, 7)).astype(np.float32)
    position_1xL = jnp.asarray([[4, 0, 2, 9, 3]])
    alike = ask(jnp.tile(position_1xL, (3, 1)), scores_BxHxLxC, method="spread", aligned=False)
    np.testing.assert_array_equal(ask(position_1xL, scores_BxHxLxC, method="spread", aligned=False), alike)


def test_difference_is_key_minus_query_and_of_slots_where_documents_restart():
    position_BxL = jnp.asarray([[0, 1, 2, 0, 1]])
    assert Places(position_BxL, aligned=False).difference()[0, 2, 0] == -2
    aligned = Places(position_BxL, aligned=True).difference()
    assert aligned.shape == (1, 5, 5) and aligned[0, 3, 4] == 1 and aligned[0, 0, 4] == 4
