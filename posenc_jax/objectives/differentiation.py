"""Penalties on likeness, for any objective that trains an encoder: of words (TCD) and of attention heads (HCD).

MTH-style: the idea is of Zhang et al. 2023, the rest our choice (`model/similarity.py`).
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict

from posenc_jax.config import DifferentiationConfig
from posenc_jax.model.similarity import HEADS, WORDS, count_texts
from posenc_jax.training.objective import Mean, Terms

NAMES = {"tcd": ("token", WORDS), "hcd": ("head", HEADS)}
"""Loss term -> the part of the config it is of, and the collection its sums are left in."""


def coefficients(config: DifferentiationConfig) -> dict[str, float]:
    """Those of the terms that are asked for."""
    factors = {term: getattr(config, f"{part}_weight") for term, (part, _) in NAMES.items()}
    return {term: factor for term, factor in factors.items() if factor}


def collections(config: DifferentiationConfig) -> list[str]:
    """What to make mutable in the encoder's forward pass."""
    return [NAMES[term][1] for term in coefficients(config)]


def weights(config: DifferentiationConfig, segments_BxL: jax.Array, layers: int) -> dict[str, jax.Array]:
    """Texts of two words or more; words, once for each layer."""
    asked = coefficients(config)
    counts = {"tcd": count_texts(segments_BxL), "hcd": (segments_BxL > 0).sum() * jnp.float32(layers)}
    return {term: counts[term] for term in asked}


def sums(
    config: DifferentiationConfig, left: Mapping[str, Any], weights: Mapping[str, jax.Array]
) -> tuple[dict[str, jax.Array], Terms]:
    """From what the encoder left: each term's sum in its form, and the other forms and the entropy to look at."""
    losses, metrics = {}, {}
    for term in coefficients(config):
        part, collection = NAMES[term]
        form = getattr(config, f"{part}_form")
        for path, (total,) in flatten_dict(dict(left[collection])).items():
            if path[-1] == form:
                losses[term] = total.sum()  # over the layers
            else:
                name = "attention_entropy" if path[-1] == "entropy" else f"{part}_cosine_{path[-1]}"
                metrics[name] = Mean(total.sum(), weights[term])
    return losses, metrics
