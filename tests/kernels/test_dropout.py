"""The hash behind dropout: a NumPy reading of it, its rate, and that no two places know of each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.kernels.dropout import keep_rows

SEED = np.array([0x12345678, 0x9ABCDEF0], np.uint32)


def mixed(x, second=0):
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) + np.uint32(second)
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def drawn(seed, row, head, query, key):
    """The byte of one place, by the definition."""
    with np.errstate(over="ignore"):
        first, second = (mixed(mixed(mixed(np.uint32(word)) ^ np.uint32(head)) ^ np.uint32(row)) for word in seed)
        place = np.uint32(query << 16 | key % 128) ^ np.uint32(key // 512 * 128) ^ first
        word = mixed(place, second)
    return int(word >> np.uint32(8 * (key // 128 % 4))) & 255


@pytest.mark.parametrize("shape", [(3, 5, 600), (5, 130), (40,)])
def test_what_is_kept_is_what_the_definition_says(shape):
    rows = np.array([0, 7, 1000])
    kept = np.asarray(keep_rows(jnp.asarray(SEED), jnp.asarray(rows), 200, shape))
    heads, queries, keys = (1,) * (3 - len(shape)) + shape
    # The kernels compare a byte as a signed number: its upper half comes first.
    want = [
        [
            [[(drawn(SEED, row, h, q, k) + 128) % 256 < 200 for k in range(keys)] for q in range(queries)]
            for h in range(heads)
        ]
        for row in rows
    ]
    np.testing.assert_array_equal(kept, np.reshape(want, (3, *shape)))


@pytest.mark.parametrize("kept", [128, 230])
def test_the_share_is_the_one_asked_for_and_places_are_independent(kept):
    got = np.asarray(keep_rows(jnp.asarray(SEED), jnp.arange(400), kept, (2, 4, 640))).reshape(400, -1)
    share = kept / 256
    assert abs(got.mean() - share) < 4 * np.sqrt(share * (1 - share) / got.size)
    # Over rows: places that share a word (128 apart), neighbours, heads, queries.
    for step in (1, 2, 128, 256, 384, 512, 640, 4 * 640):
        together = (got[:, :-step] & got[:, step:]).mean()
        assert abs(together - share**2) < 5 * np.sqrt(share**2 * (1 - share**2) / got.size), step
    together = (got[:-1] & got[1:]).mean()
    assert abs(together - share**2) < 5 * np.sqrt(share**2 * (1 - share**2) / got.size)
    for axis in (0, 1):  # no row and no place is kept or dropped more often than chance has it
        assert abs(got.mean(axis) - share).max() < 5.5 * np.sqrt(share * (1 - share) / got.shape[axis])


def test_every_word_of_the_seed_counts():
    masks = [
        np.asarray(keep_rows(jnp.asarray(seed, jnp.uint32), jnp.arange(4), 128, (64,)))
        for seed in ([1, 2], [1, 3], [2, 2], [2, 1])
    ]
    assert len({mask.tobytes() for mask in masks}) == 4


def test_it_is_one_program_for_all_seeds_and_rows():
    draw = jax.jit(keep_rows, static_argnums=(2, 3))
    for seed in (1, 2):
        draw(jnp.array([seed, seed], jnp.uint32), jnp.arange(seed, seed + 3), 200, (5, 6))
    assert draw._cache_size() == 1
