"""Which values dropout keeps: a hash of where they stand.

A hash, not a generator's stream: the same inside a kernel and out of it, on every chip, in the interpreter and in
NumPy, drawn anew in a backward pass, and of a row and a head alone, wherever they lie on a mesh.
"""

import jax
import jax.numpy as jnp

LANES = 128
_BYTES = 4
_MULTIPLIERS = 0x7FEB352D, 0x846CA68B - 2**32
"""Of C. Wellons' hash "lowbias32", as signed numbers."""

Key = tuple[jax.Array, jax.Array] | jax.Array
"""Two int32 numbers."""


def kept_of_256(rate: float) -> int:
    """How many of 256 draws keep a value."""
    return round(256 * (1 - rate))


def keep_rows(seed_2: jax.Array, rows_B: jax.Array, kept: int, shape: tuple[int, ...]) -> jax.Array:
    """Boolean [B, *shape], true with probability kept / 256: of the rows with these numbers, each [heads, queries,
    keys], [queries, keys] or [keys]. `seed_2`: two random words.

    What `keep` says of each row and head; every place draws its word for itself, so that XLA makes one loop of it.
    """
    heads, queries, keys = (1,) * (3 - len(shape)) + shape
    head_1xH, row_Bx1 = jnp.arange(heads, dtype=jnp.int32)[None], rows_B.astype(jnp.int32)[:, None]
    seed = jax.lax.bitcast_convert_type(seed_2, jnp.int32)
    first, second = (word_BxH[..., None, None] for word_BxH in row_key(seed, head_1xH, row_Bx1))
    query, key = (jax.lax.broadcasted_iota(jnp.int32, (1, 1, queries, keys), axis) for axis in (2, 3))
    place = _folded((query << 16) | (key & (LANES - 1)))
    word = _mixed(place ^ _folded(first ^ (key // (LANES * _BYTES) * LANES)), second)
    drawn = word << (24 - 8 * (key // LANES & (_BYTES - 1)))
    return (drawn < _bound(kept)).reshape(len(rows_B), *shape)


def row_key(seed: Key, head: jax.Array, row: jax.Array) -> Key:
    """The key of one head in one row of the batch."""
    first, second = (_hash(_hash(_hash(word) ^ head) ^ row) for word in seed)
    return first, second


def keep(key: Key, kept: int, queries: int, keys: int, first_query: int = 0) -> jax.Array:
    """Boolean [queries, keys], true with probability kept / 256, for queries that begin at `first_query`.

    One random word serves four weights, a byte each: key k has byte (k // 128) % 4 of word (query, k % 128, k // 512).
    """
    query_Qx128, lane_Qx128 = (jax.lax.broadcasted_iota(jnp.int32, (queries, LANES), axis) for axis in (0, 1))
    place_Qx128 = _folded(((query_Qx128 + first_query) << 16) | lane_Qx128)
    blocks: list[jax.Array] = []
    for first_key in range(0, keys, LANES * _BYTES):
        scalar = _folded(key[0] ^ (first_key // _BYTES))
        word_Qx128 = _mixed(place_Qx128 ^ scalar, key[1])
        # The byte comes to the top of the word, which is then compared as a signed number.
        blocks += [word_Qx128 << (24 - 8 * byte) for byte in range(_BYTES)]
    drawn_QxK = jnp.concatenate(blocks[: -(-keys // LANES)], axis=1)[:, :keys]
    return drawn_QxK < _bound(kept)


def _bound(kept: int) -> int:
    """Below which a signed word is whose uppermost byte is one of the `kept` least."""
    return (kept - 128) * 2**24


def _hash(x: jax.Array) -> jax.Array:
    return _mixed(_folded(x))


def _folded(x: jax.Array) -> jax.Array:
    """The hash's first act. It is linear over exclusive or, so what all keys share is folded once."""
    return x ^ _shifted(x, 16)


def _mixed(folded: jax.Array, second: jax.Array | int = 0) -> jax.Array:
    """The acts after `_folded`, with a second key between the multiplications."""
    x = folded * _MULTIPLIERS[0]
    x = (x ^ _shifted(x, 15)) + second
    x = x * _MULTIPLIERS[1]
    return x ^ _shifted(x, 16)


def _shifted(x: jax.Array, bits: int) -> jax.Array:
    return jax.lax.shift_right_logical(x, jnp.asarray(bits, x.dtype))
