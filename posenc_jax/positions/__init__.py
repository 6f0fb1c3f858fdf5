"""Position schemes: what a layer asks about where its words are. One file a family."""

from posenc_jax.positions.part import Meet, Part
from posenc_jax.positions.places import Places
from posenc_jax.positions.scheme import PARTS, Scheme, check_scheme, is_relative, part_names

__all__ = ["PARTS", "Meet", "Part", "Places", "Scheme", "check_scheme", "is_relative", "part_names"]
