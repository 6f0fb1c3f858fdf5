"""What the training step asks of an objective."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp


class Mean(NamedTuple):
    """A mean whose sum and weight, float32 scalars, are carried apart and divided once, at the very end: slices of a
    batch, devices and processes together give the mean over the whole."""

    total: jax.Array
    weight: jax.Array

    def value(self) -> jax.Array:
        """0 where nothing was weighed."""
        return self.total / jnp.maximum(self.weight, 1e-9)


class Area(NamedTuple):
    """The area under the ROC curve, from how many examples of each kind had a score in each of K bins [K].

    Counts add up as sums do, so the area is that of all examples together; scores in one bin count as equal.
    """

    positive_K: jax.Array
    negative_K: jax.Array

    def value(self) -> jax.Array:
        """Probability that a positive example scores above a negative one; 0.5 where a kind is missing."""
        below_K = jnp.cumsum(self.negative_K) - self.negative_K / 2
        pairs = self.positive_K.sum() * self.negative_K.sum()
        return jnp.where(pairs > 0, (self.positive_K * below_K).sum() / jnp.maximum(pairs, 1), 0.5)


Terms = dict[str, Mean | Area]
"""Statistics by name. Those of several batches are added leaf by leaf, and read once."""


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
