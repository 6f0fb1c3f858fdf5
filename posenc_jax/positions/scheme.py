"""A scheme: parts joined by "+", asked together. The encoder and its layers know no part by name."""

from typing import Any, Literal

import jax
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.errors import UsageError
from posenc_jax.positions.learned import Learned
from posenc_jax.positions.part import Part
from posenc_jax.positions.t5 import T5
from posenc_jax.positions.tupe import Tupe

PARTS: dict[str, type[Part]] = {"learned": Learned, "t5": T5, "tupe": Tupe}
"""A new part is one file and one line here."""


def part_names(positions: PositionConfig) -> list[str]:
    """Names in `positions.scheme`; none for "none". Raises `UsageError` on a name that no part has."""
    if positions.scheme == "none":
        return []
    names = positions.scheme.split("+")
    for name in names:
        if name not in PARTS:
            known = ", ".join(["none", *PARTS])
            raise UsageError(f"model.positions.scheme={positions.scheme!r} names {name!r}; the parts are {known}")
    if len(set(names)) < len(names):
        raise UsageError(f"model.positions.scheme={positions.scheme!r} names a part twice")
    return names


def check_scheme(positions: PositionConfig, length: int) -> None:
    """Raises `UsageError` where the scheme does not exist or cannot tell `length` positions apart."""
    names = part_names(positions)
    limited = [name for name in names if PARTS[name].has_table]
    if limited and length > positions.max_length:
        raise UsageError(
            f"rows of {length} slots are longer than model.positions.max_length={positions.max_length}, "
            f"the table of {limited[0]!r}; raise it to {length} or prepare shorter rows"
        )


class Scheme(nn.Module):
    """All parts of `config.positions.scheme` as one; each question goes to every part and the answers add up."""

    config: ModelConfig
    place: Literal["encoder", "layer"]

    def setup(self) -> None:
        for name in part_names(self.config.positions):
            setattr(self, name, PARTS[name](self.config, self.place, self.terms))

    @property
    def terms(self) -> int:
        """Correlations summed in a logit; the scale is 1 / sqrt(terms * d)."""
        return 1 + sum(PARTS[name].extra_terms for name in part_names(self.config.positions))

    def _parts(self) -> dict[str, Part]:
        return {name: getattr(self, name) for name in part_names(self.config.positions)}

    def is_relative(self) -> bool:
        """Whether every part asks for differences of positions only."""
        return all(part.is_relative for part in self._parts().values())

    def embed(self, x_BxLxD: jax.Array, position_BxL: jax.Array) -> jax.Array:
        for part in self._parts().values():
            x_BxLxD = part.embed(x_BxLxD, position_BxL)
        return x_BxLxD

    def shared_bias(self, position_BxL: jax.Array) -> jax.Array | None:
        return _sum(part.shared_bias(position_BxL) for part in self._parts().values())

    def shared_tables(self) -> dict[str, Any]:
        return {name: part.shared_tables() for name, part in self._parts().items()}

    def rotate(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, position_BxL: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        for part in self._parts().values():
            q_BxLxHxd, k_BxLxHxd = part.rotate(q_BxLxHxd, k_BxLxHxd, position_BxL)
        return q_BxLxHxd, k_BxLxHxd

    def content_terms(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, position_BxL: jax.Array, tables: dict[str, Any]
    ) -> jax.Array | None:
        return _sum(
            part.content_terms(q_BxLxHxd, k_BxLxHxd, position_BxL, tables[name]) for name, part in self._parts().items()
        )


def _sum(answers: Any) -> jax.Array | None:
    given = [answer for answer in answers if answer is not None]
    return sum(given[1:], start=given[0]) if given else None
