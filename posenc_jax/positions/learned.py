"""Learned absolute positions, added to the words at the input: BERT-A."""

from typing import ClassVar

import jax
from flax import linen as nn

from posenc_jax.layers import repeated, weights
from posenc_jax.parallel.mesh import gathered
from posenc_jax.positions.part import Part
from posenc_jax.positions.places import Places


class Learned(Part):
    """x + P[position + offset], P of max_length + offset rows, drawn as the words are (BERT; tupe.md 1.4)."""

    source: ClassVar[str] = "Devlin et al. 2019"
    knobs: ClassVar[tuple[str, ...]] = ("offset",)
    has_table: ClassVar[bool] = True

    def setup(self) -> None:
        if self.place == "encoder":
            config = self.config
            rows = config.positions.max_length + config.positions.offset
            init = nn.with_logical_partitioning(weights(config), ("position", "embed"))
            self.table = self.param("table", init, (rows, config.embedding_width or config.width))

    def embed(self, x_BxLxE: jax.Array, places: Places) -> jax.Array:
        table = gathered(self.table, "position", "embed")
        place_BxLxE = table[places.position_BxL + self.config.positions.offset].astype(x_BxLxE.dtype)
        if len(place_BxLxE) == 1:
            place_BxLxE = repeated(place_BxLxE[0], (len(x_BxLxE),))
        return x_BxLxE + place_BxLxE
