"""What the training step asks of an objective."""

from collections.abc import Mapping
from typing import Any, Protocol

import jax

Terms = dict[str, tuple[jax.Array, jax.Array]]
"""Name -> (sum, weight), float32 scalars. Divided once, at the very end, so that slices of a batch, devices and
processes together give the mean over the whole."""


class Objective(Protocol):
    """Parameters and batch in, sums of losses and their weights out.

    A batch is a dict of arrays [B, ...]. The loss of a step is the sum over its terms of coefficient * sum / weight.
    """

    coefficients: Mapping[str, float]
    """Loss term -> its factor."""

    def init(self, key: jax.Array) -> Any:
        """Fresh parameters, boxed with the logical names of their axes."""
        ...

    def prepare(self, batch: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
        """What is made of a batch on the device before it is learned from, such as masking; leading axes stay B."""
        ...

    def weights(self, examples: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The denominator of each loss term over all of `examples`: no parameter enters, so it is known beforehand."""
        ...

    def sums(
        self, params: Any, examples: dict[str, jax.Array], key: jax.Array, train: bool
    ) -> tuple[dict[str, jax.Array], Terms]:
        """The sum of each loss term over `examples`, and metrics. `key` feeds dropout when `train`."""
        ...
