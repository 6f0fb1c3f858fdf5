"""A scheme: parts joined by "+", asked together. The encoder and its layers know no part by name."""

import dataclasses
from typing import Any, Literal

import jax
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.errors import UsageError
from posenc_jax.positions.alibi import Alibi
from posenc_jax.positions.bert_ad import BertAd
from posenc_jax.positions.ddrp import Ddrp
from posenc_jax.positions.deberta import Deberta
from posenc_jax.positions.learned import Learned
from posenc_jax.positions.part import Meet, Part
from posenc_jax.positions.places import Places
from posenc_jax.positions.rope import Rope
from posenc_jax.positions.shaw import Shaw
from posenc_jax.positions.sinusoidal import Sinusoidal
from posenc_jax.positions.t5 import T5
from posenc_jax.positions.tupe import Tupe

PARTS: dict[str, type[Part]] = {
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rope": Rope,
    "alibi": Alibi,
    "t5": T5,
    "shaw": Shaw,
    "ddrp": Ddrp,
    "deberta": Deberta,
    "bert_ad": BertAd,
    "tupe": Tupe,
}
"""A new part is one file and one line here."""


def part_names(positions: PositionConfig) -> list[str]:
    """Names in `positions.scheme`; none for "none". Raises `UsageError` on a name that no part has."""
    if positions.scheme == "none":
        return []
    names = positions.scheme.split("+")
    for name in names:
        if name == "none":
            raise UsageError(f"model.positions.scheme={positions.scheme!r}: 'none' stands alone")
        if name not in PARTS:
            known = ", ".join(["none", *PARTS])
            raise UsageError(f"model.positions.scheme={positions.scheme!r} names {name!r}; the parts are {known}")
    if len(set(names)) < len(names):
        raise UsageError(f"model.positions.scheme={positions.scheme!r} names a part twice")
    return names


def is_relative(positions: PositionConfig) -> bool:
    """Whether every part asks for differences of positions only."""
    return all(PARTS[name].is_relative(positions) for name in part_names(positions))


def check_scheme(model: ModelConfig, length: int) -> None:
    """Raises `UsageError` where the scheme does not exist, does not fit the model, cannot tell `length` positions
    apart, or has a knob turned that none of its parts reads."""
    positions = model.positions
    names = part_names(positions)
    limited = [name for name in names if PARTS[name].has_table]
    if limited and length > positions.max_length:
        raise UsageError(
            f"rows of {length} slots are longer than model.positions.max_length={positions.max_length}, "
            f"the table of {limited[0]!r}; raise it to {length} or prepare shorter rows"
        )
    read = {"scheme", "max_length"}.union(*(PARTS[name].knobs for name in names))
    for field in dataclasses.fields(positions):
        value = getattr(positions, field.name)
        if field.name not in read and value != field.default:
            readers = [name for name, part in PARTS.items() if field.name in part.knobs]
            raise UsageError(
                f"model.positions.{field.name}={value!r} would change nothing: no part of the scheme "
                f"{positions.scheme!r} reads it, only {', '.join(readers)}"
            )
    for name in names:
        PARTS[name].check(model)


class Scheme(nn.Module):
    """All parts of `config.positions.scheme` as one; each question goes to every part and the answers add up."""

    config: ModelConfig
    place: Literal["encoder", "layer"]

    def setup(self) -> None:
        for name in part_names(self.config.positions):
            setattr(self, name, PARTS[name](self.config, self.place, self.terms))

    @property
    def terms(self) -> int:
        """Correlations summed in a logit."""
        positions = self.config.positions
        return 1 + sum(PARTS[name].extra_terms(positions) for name in part_names(positions))

    @property
    def scale(self) -> float:
        """1 / sqrt(terms * d), the factor of every correlation."""
        return (self.terms * self.config.head_width) ** -0.5

    def _parts(self) -> dict[str, Part]:
        return {name: getattr(self, name) for name in part_names(self.config.positions)}

    def embed(self, x_BxLxE: jax.Array, places: Places) -> jax.Array:
        for part in self._parts().values():
            x_BxLxE = part.embed(x_BxLxE, places)
        return x_BxLxE

    def shared_bias(self, places: Places) -> jax.Array | None:
        return _sum(part.shared_bias(places) for part in self._parts().values())

    def shared_tables(self) -> dict[str, Any]:
        return {name: part.shared_tables() for name, part in self._parts().items()}

    def queries_and_keys(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, places: Places, tables: dict[str, Any]
    ) -> tuple[jax.Array, jax.Array]:
        for name, part in self._parts().items():
            q_BxLxHxd, k_BxLxHxd = part.queries_and_keys(q_BxLxHxd, k_BxLxHxd, places, tables[name])
        return q_BxLxHxd, k_BxLxHxd

    def content_terms(
        self, q_BxLxHxd: jax.Array, k_BxLxHxd: jax.Array, places: Places, tables: dict[str, Any], meet: Meet
    ) -> jax.Array | None:
        return _sum(
            part.content_terms(q_BxLxHxd, k_BxLxHxd, places, tables[name], meet) for name, part in self._parts().items()
        )

    @property
    def reads_weights(self) -> bool:
        """Whether a part asks for the attention weights, to move the values."""
        return any(type(part).value_terms is not Part.value_terms for part in self._parts().values())

    def value_terms(self, weights_BxHxLxL: jax.Array, places: Places, tables: dict[str, Any]) -> jax.Array | None:
        return _sum(part.value_terms(weights_BxHxLxL, places, tables[name]) for name, part in self._parts().items())


def _sum(answers: Any) -> jax.Array | None:
    given = [answer for answer in answers if answer is not None]
    return sum(given[1:], start=given[0]) if given else None
