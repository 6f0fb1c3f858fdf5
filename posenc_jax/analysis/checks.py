"""What would otherwise pass and give a number: a word that names no form, states that are not finite."""

import typing
from collections.abc import Collection, Sequence
from typing import Any

from posenc_jax.errors import UserError


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Raises `ValueError` where `value` is none of `choices`, words or a `Literal` of them."""
    words: Collection[str] = typing.get_args(choices) or choices
    if value not in words:
        raise ValueError(f"{name}={value!r} is none of {', '.join(words)}")


def check_finite(is_finite_E: Sequence[bool], names: Sequence[str]) -> None:
    """Raises `UserError` with the first layer whose numbers are not."""
    if broken := [name for name, is_finite in zip(names, is_finite_E, strict=True) if not is_finite]:
        raise UserError(
            f"the states of layer {broken[0]} are not finite: training has diverged or the weights are damaged; take "
            "an earlier checkpoint, WORKDIR/checkpoints/STEP"
        )
