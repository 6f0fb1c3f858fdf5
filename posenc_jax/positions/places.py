"""Where the words of a batch stand, and what follows from it: differences, and tables indexed by them."""

import jax
import jax.numpy as jnp
from flax import struct


@struct.dataclass
class Places:
    """Positions of a batch of rows."""

    position_BxL: jax.Array
    """Int32 [B, L], or [1, L] where all rows have the same positions."""
    aligned: bool = struct.field(pytree_node=False)
    """Within a document, the difference of two slots is that of their positions: true of every packed row. Then a
    relative term is the same matrix for all rows, and a table is read along its diagonals without a gather."""

    def difference(self) -> jax.Array:
        """Position of the key minus that of the query, int32 [1 or B, L, L]; between documents it means nothing."""
        position_BxL = jnp.arange(self.position_BxL.shape[-1])[None] if self.aligned else self.position_BxL
        return position_BxL[:, None, :] - position_BxL[:, :, None]

    def spread(self, scores_BxHxLxC: jax.Array) -> jax.Array:
        """Score of each query with each clipped difference -K..K (C = 2K + 1) -> its score with each key [B, H, L, L].

        Aligned, row i of the result is row i of the scores, moved i places to the left: a reshape does it.
        """
        length, clip = scores_BxHxLxC.shape[-2], scores_BxHxLxC.shape[-1] // 2
        if not self.aligned or length == 1:
            index_BxLxL = jnp.clip(self.difference(), -clip, clip) + clip
            return jnp.take_along_axis(scores_BxHxLxC, index_BxLxL[:, None], axis=-1)
        reach = length - 1
        if clip > reach:
            scores_BxHxLxC = scores_BxHxLxC[..., clip - reach : clip + reach + 1]
        else:
            ends = [(0, 0)] * 3 + [(reach - clip, reach - clip)]
            scores_BxHxLxC = jnp.pad(scores_BxHxLxC, ends, mode="edge")
        lead = scores_BxHxLxC.shape[:2]
        flat = scores_BxHxLxC.reshape(*lead, length * (2 * length - 1))
        return flat[..., reach : reach + 2 * reach * length].reshape(*lead, length, 2 * reach)[..., :length]

    def gather(self, weights_BxHxLxL: jax.Array, clip: int) -> jax.Array:
        """Weight of each query for each key, summed over the keys at each clipped difference: [B, H, L, 2 * clip + 1].

        The transpose of `spread`, and computed as that.
        """
        *lead, length, _ = weights_BxHxLxL.shape
        scores = jax.ShapeDtypeStruct((*lead, length, 2 * clip + 1), weights_BxHxLxL.dtype)
        return jax.linear_transpose(self.spread, scores)(weights_BxHxLxL)[0]
