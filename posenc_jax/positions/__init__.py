"""Position schemes: what a layer asks about where its words are. One file a family."""

from posenc_jax.positions.learned import Learned
from posenc_jax.positions.part import Part
from posenc_jax.positions.scheme import PARTS, Scheme, check_scheme
from posenc_jax.positions.t5 import T5
from posenc_jax.positions.tupe import Tupe

__all__ = ["PARTS", "T5", "Learned", "Part", "Scheme", "Tupe", "check_scheme"]
