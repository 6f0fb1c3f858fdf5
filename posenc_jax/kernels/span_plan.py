"""The shapes of the span-dynamic convolution's kernel, and the small arrays that it is given beside its inputs."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.kernels.vmem import USUAL, VMEM

LANES = 128
"""Lanes of a register, and words of a window of values."""
SUBLANES = 8
_MOST_HALO = 56
_DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Plan:
    """A row of L words is done in tiles of R words; those look at a window of 128 words, `halo` more on each side.

    Logits lie as [S, R], row `slot * heads_padded + head`: a softmax over the slots then adds registers, and no lane
    moves. A tile's band of weights lies as [128, R], each head's slots on `head_rows` rows of its own.
    """

    length: int
    heads: int
    head_width: int
    slots: int

    @property
    def width(self) -> int:
        return self.heads * self.head_width

    @property
    def halo(self) -> int:
        return max(SUBLANES, _up(self.slots // 2, SUBLANES))

    @property
    def tile(self) -> int:
        """Words of all tiles but the last: a multiple of 16, as bfloat16 is packed."""
        return LANES - 2 * self.halo

    @property
    def tiles(self) -> list[tuple[int, int]]:
        return [(at, min(at + self.tile, self.length)) for at in range(0, self.length, self.tile)]

    @property
    def padded_length(self) -> int:
        """Of the values: `halo` rows of zeros before them, and after them to the end of the last window."""
        return self.tiles[-1][0] + LANES

    @property
    def first(self) -> int:
        """Row of the window that the first slot of its first word looks at."""
        return self.halo - self.slots // 2

    @property
    def heads_padded(self) -> int:
        return _up(self.heads, SUBLANES)

    @property
    def logit_rows(self) -> int:
        return self.slots * self.heads_padded

    @property
    def head_rows(self) -> int:
        """A power of two above `first + slots - 1`; 16 at least, as bfloat16 is packed."""
        return max(16, 1 << (self.halo + self.slots // 2).bit_length())

    @property
    def bands(self) -> int:
        """Bands of 128 rows, of as many heads each as find a place there."""
        return _up(self.heads * self.head_rows, LANES) // LANES

    def place(self, head: int) -> tuple[int, int]:
        """Band, and row within it, of a head."""
        return divmod(head * self.head_rows, LANES)

    @property
    def lane_blocks(self) -> list[tuple[int, int, list[int]]]:
        """First lane and end of each register's lanes, and the heads that have a part in it."""
        blocks = []
        for start in range(0, self.width, LANES):
            end, size = min(start + LANES, self.width), self.head_width
            blocks.append((start, end, list(range(start // size, (end - 1) // size + 1))))
        return blocks

    def memory(self, itemsize: int) -> int:
        """Bytes of VMEM that the backward pass holds; the forward pass holds less."""
        lanes = _up(self.width, LANES)
        blocks = 7 * 2 * self.length * lanes * itemsize
        scratch = self.padded_length * lanes * itemsize
        weights = self.logit_rows * (lanes + LANES) * (2 * itemsize + 3 * 4)
        masks = 2 * (LANES // self.head_rows + self.bands) * LANES * LANES * itemsize
        return max(USUAL, (blocks + scratch + weights + masks) * 5 // 4)


def refuses(
    heads: int, head_width: int, slots: int, length: int, dtype: str = "bfloat16", chip: str | None = None
) -> str | None:
    """Why the kernel cannot take a shape, in one sentence; None where it can. `chip`: as in `VMEM`, None for any."""
    if dtype not in _DTYPES:
        return f"the span-dynamic convolution's kernel computes in {' or '.join(_DTYPES)}, not {dtype}"
    if slots % 2 == 0 or not 0 < slots <= 2 * _MOST_HALO + 1:
        return f"the span-dynamic convolution's kernel takes odd windows up to {2 * _MOST_HALO + 1}, not {slots}"
    need = Plan(_up(length, SUBLANES), heads, head_width, slots).memory(np.dtype(jnp.dtype(dtype)).itemsize)
    vmem = VMEM.get(chip, max(VMEM.values()))
    if need > vmem:
        return (
            f"the span-dynamic convolution's kernel holds a row of {length} words x {heads * head_width} channels "
            f"whole, which takes {need / 2**20:.0f} MiB, and there are {vmem / 2**20:.0f} MiB of VMEM"
        )
    return None


def packed_weights(plan: Plan, weight_AxHxK: jax.Array, bias_HxK: jax.Array, dtype) -> tuple[jax.Array, jax.Array]:
    """[S, A] in `dtype`, and float32 [S, 128], the same in all lanes; rows as the logits'."""
    more = (0, plan.heads_padded - plan.heads)
    weight_KxHxA = jnp.pad(weight_AxHxK.astype(dtype).transpose(2, 1, 0), ((0, 0), more, (0, 0)))
    bias_KxH = jnp.pad(bias_HxK.astype(jnp.float32).T, ((0, 0), more))
    bias_SxW = jnp.broadcast_to(bias_KxH.reshape(-1, 1), (plan.logit_rows, LANES))
    return weight_KxHxA.reshape(plan.logit_rows, plan.width), bias_SxW


def unpacked_weights(plan: Plan, weight_SxA: jax.Array, bias_SxW: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gradients back in the form of the parameters, [A, H, K] and [H, K]; the bias's is still to be summed."""
    shape = (plan.slots, plan.heads_padded)
    weight_KxHxA = weight_SxA.reshape(*shape, plan.width)[:, : plan.heads]
    bias_KxH = bias_SxW.sum(1).reshape(shape)[:, : plan.heads]
    return weight_KxHxA.transpose(2, 1, 0), bias_KxH.T


@functools.lru_cache
def spread(plan: Plan, dtype: str) -> np.ndarray:
    """0/1 matrix [bands * 128, S]: from rows of logits to those of the bands, where word 0 of a tile has them."""
    row, source = np.arange(plan.bands * LANES)[:, None], np.arange(plan.logit_rows)
    slot, head = np.divmod(source, plan.heads_padded)
    return ((row == head * plan.head_rows + plan.first + slot) & (head < plan.heads)).astype(jnp.dtype(dtype))


@functools.lru_cache
def band_masks(plan: Plan, dtype: str, words_first: bool) -> np.ndarray:
    """For each place in a band [128, 128] bits, all ones where the head there has its weights: word t's lie t rows
    further down. Unsigned integers as wide as `dtype`, the places one below the other; `words_first`: word, row."""
    kind = np.dtype(f"uint{8 * jnp.dtype(dtype).itemsize}")
    row, word = np.arange(LANES)[:, None], np.arange(LANES)
    owner = (row - word) % LANES // plan.head_rows
    owner = owner.T if words_first else owner
    places = min(plan.heads, LANES // plan.head_rows)
    return np.concatenate([np.where(owner == place, np.iinfo(kind).max, 0) for place in range(places)]).astype(kind)


def segment_windows(plan: Plan, segments_BxL: jax.Array) -> jax.Array:
    """[B, tiles, 128]: the documents' numbers in the window of each tile, 0 beyond the ends."""
    ends = (plan.halo, plan.padded_length - plan.length - plan.halo)
    padded = jnp.pad(segments_BxL.astype(jnp.int32), ((0, 0), ends))
    return jnp.stack([padded[:, start : start + LANES] for start, _ in plan.tiles], 1)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
