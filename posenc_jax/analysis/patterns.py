"""What a positional map makes a head look at: profiles by distance, entropy, and a name for the pattern.

TUPE (Ke et al. 2021, figure 6) tells five patterns apart by eye: global, local, broad, previous, next. The rule that
names them here is ours. All of it reads a map as the logits of attention and nothing else: its row-softmax.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax, xlogy

RULE = (
    "global: mean entropy of the rows at least 0.95 of log n; previous, next: more than 0.7 of the attention on that "
    "side; local: more than 0.5 of it within 2 positions; broad: the rest"
)
"""As `classify` has it by default, for a caption."""


class Pattern(NamedTuple):
    """A head's name and the numbers that it comes from, each a mean over the rows."""

    label: str
    entropy: float
    """As a share of log n, that of uniform attention."""
    near: float
    """Attention within the window, the word itself included."""
    before: float
    after: float
    """Attention on earlier and on later positions; the word itself is in neither."""


def attention_of(map_HxLxL: np.ndarray) -> np.ndarray:
    """The row-softmax, float64 [H, L, L]. Where [CLS] is untied give `map[:, 1:, 1:]`: its cells tell no position."""
    map_HxLxL = np.asarray(map_HxLxL, np.float64)
    if map_HxLxL.ndim != 3 or map_HxLxL.shape[1] != map_HxLxL.shape[2] or map_HxLxL.shape[1] < 2:
        raise ValueError(f"maps have the shape [H, L, L] with L of 2 or more, not {map_HxLxL.shape}")
    return softmax(map_HxLxL, axis=-1)


def distances(length: int) -> np.ndarray:
    """The distances j - i of a profile, -(length - 1) to length - 1."""
    return np.arange(1 - length, length)


def profile(map_HxLxL: np.ndarray) -> np.ndarray:
    """Mean attention at each distance j - i, by `distances`: float64 [H, 2 L - 1].

    A mean over each diagonal of the row-softmax. At length 5 the diagonal at 4 has one cell and that at 0 has five, and
    rows near an end share their attention among the distances that they have.
    """
    return diagonal_means(attention_of(map_HxLxL))


def diagonal_means(map_HxLxL: np.ndarray) -> np.ndarray:
    """Mean of each diagonal, by `distances`: float64 [H, 2 L - 1]."""
    map_HxLxL = np.asarray(map_HxLxL, np.float64)
    each = [np.diagonal(map_HxLxL, distance, 1, 2).mean(-1) for distance in distances(map_HxLxL.shape[-1])]
    return np.stack(each, axis=-1)


def entropy(map_HxLxL: np.ndarray) -> np.ndarray:
    """Mean entropy of the rows of the softmax, in nats: [H]; log L where attention is uniform."""
    weights_HxLxL = attention_of(map_HxLxL)
    return -xlogy(weights_HxLxL, weights_HxLxL).sum(-1).mean(-1)


def classify(
    map_HxLxL: np.ndarray,
    *,
    global_entropy: float = 0.95,
    side: float = 0.7,
    local: float = 0.5,
    window: int = 2,
) -> list[Pattern]:
    """A pattern for each head, by the first of `RULE` that holds; with other cut-offs say so in its place.

    One side comes before local: a head that reads the word before is near, too.
    """
    weights_HxLxL = attention_of(map_HxLxL)
    length = weights_HxLxL.shape[-1]
    difference_LxL = np.arange(length)[None] - np.arange(length)[:, None]
    near_H, before_H, after_H = (
        (weights_HxLxL * mask_LxL).sum(-1).mean(-1)
        for mask_LxL in (np.abs(difference_LxL) <= window, difference_LxL < 0, difference_LxL > 0)
    )
    found = []
    for share, near, before, after in zip(entropy(map_HxLxL) / np.log(length), near_H, before_H, after_H, strict=True):
        if share >= global_entropy:
            label = "global"
        elif max(before, after) > side:
            label = "previous" if before > after else "next"
        else:
            label = "local" if near > local else "broad"
        found.append(Pattern(label, float(share), float(near), float(before), float(after)))
    return found
