"""How one tensor lies here and in a Hugging Face file: a pair of functions for each way in which the two differ.

PyTorch's linear weights are [out, in], ours [in, ...] with heads and head width as axes of their own.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

Shape = tuple[int, ...]


class Layout(NamedTuple):
    to_theirs: Callable[[np.ndarray], np.ndarray]
    to_ours: Callable[[np.ndarray, Shape], np.ndarray]
    """Their tensor and the shape of ours -> ours."""


def _reshaped(x: np.ndarray, shape: Shape) -> np.ndarray:
    return x.reshape(shape)


def _linear(inputs: int) -> Layout:
    """A kernel whose first `inputs` axes are multiplied away."""
    return Layout(
        lambda x: x.reshape(int(np.prod(x.shape[:inputs])), -1).T,
        lambda x, shape: x.T.reshape(shape),
    )


LAYOUTS: dict[str, Layout] = {
    "same": Layout(lambda x: x, _reshaped),
    "flat": Layout(lambda x: x.reshape(-1), _reshaped),
    "linear": _linear(1),
    "linear_of_heads": _linear(2),
    # Grouped kernels are [G, in / G, out / G] on both sides and never transposed.
    "linear_or_groups": Layout(
        lambda x: x if x.ndim == 3 else x.T,
        lambda x, shape: (x if len(shape) == 3 else x.T).reshape(shape),
    ),
    "depthwise": Layout(  # [K, D] and [D, 1, K]
        lambda x: x.T[:, None],
        lambda x, shape: x[:, 0].T.reshape(shape),
    ),
    "pointwise": Layout(  # [D, H, d] and [H * d, D, 1]
        lambda x: x.reshape(x.shape[0], -1).T[..., None],
        lambda x, shape: x[..., 0].T.reshape(shape),
    ),
    "column": Layout(lambda x: x.reshape(-1, 1), _reshaped),
}


def their_shape(layout: str, ours: Shape) -> Shape:
    """Shape of their tensor for a tensor of ours; nothing is computed."""
    return jax.eval_shape(LAYOUTS[layout].to_theirs, jax.ShapeDtypeStruct(ours, np.float32)).shape
