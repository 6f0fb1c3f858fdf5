"""Cosines of the vectors of sentences, or of words in sentences, from every layer of an encoder.

Shape letters: N pairs, E layers, D width.
"""

from collections.abc import Sequence

import numpy as np

from posenc_jax.analysis.mean_vectors import Row, mean_vectors
from posenc_jax.analysis.transforms import Transform
from posenc_jax.config import ModelConfig
from posenc_jax.errors import UsageError
from posenc_jax.interop.pretrained import FrozenEncoder, layer_names

CHUNK = 2048
"""Pairs whose vectors are held at a time."""
DECIMALS = 9
"""Kept of a cosine. What is beyond is rounding, and would rank the pairs of an encoder that knows no difference."""


def choose_layers(model: ModelConfig, wanted: str) -> list[int]:
    """Places in `layer_names` for "all", "last" (the encoder's own output) or a number. Raises `UsageError`."""
    names = layer_names(model)
    if wanted == "all":
        return list(range(len(names)))
    if wanted == "last":
        return [len(names) - 1]
    if wanted not in names:
        raise UsageError(f"--layers {wanted} is no layer of this encoder; take all, last or one of 0 to {model.layers}")
    return [names.index(wanted)]


def cosines(
    encoder: FrozenEncoder,
    rows_a: Sequence[Row],
    rows_b: Sequence[Row],
    layers: Sequence[int] | None = None,
    transforms: Sequence[Transform | None] = (None,),
    chunk: int = CHUNK,
) -> np.ndarray:
    """Float64 [T, N, E]: under each transform the cosine of each pair in the layers at these places (None: all).

    None among the transforms stands for the vectors as they are. A transform comes after the mean over slots; for what
    is linear in the vector, as zeroing coordinates is, that is as well as before it. It must take each vector by
    itself, for pairs come in chunks. A text that occurs again within `chunk` pairs is encoded once. The cosine with a
    vector of zeros is 0.
    """
    parts = []
    for first in range(0, len(rows_a), chunk):
        a, b = rows_a[first : first + chunk], rows_b[first : first + chunk]
        place = {row: number for number, row in enumerate(dict.fromkeys([*a, *b]))}
        index_a, index_b = ([place[row] for row in side] for side in (a, b))
        vectors_ExNxD = mean_vectors(encoder, list(place)).swapaxes(0, 1)
        chosen = range(len(vectors_ExNxD)) if layers is None else layers
        found = []
        for transform in transforms:
            changed_ExNxD = vectors_ExNxD if transform is None else transform(vectors_ExNxD)
            if changed_ExNxD.shape != vectors_ExNxD.shape:
                raise ValueError(f"the transform made {changed_ExNxD.shape} of {vectors_ExNxD.shape}")
            layers_E = [cosine(changed_ExNxD[e, index_a], changed_ExNxD[e, index_b]) for e in chosen]
            found.append(np.stack(layers_E, axis=1))
        parts.append(np.stack(found))
    return np.concatenate(parts, axis=1)


def cosine(a_NxD: np.ndarray, b_NxD: np.ndarray) -> np.ndarray:
    """Float64 [N], to 9 decimals; 0 where either vector is zero."""
    a_NxD, b_NxD = (np.asarray(side, np.float64) for side in (a_NxD, b_NxD))
    norms_N = np.linalg.norm(a_NxD, axis=1) * np.linalg.norm(b_NxD, axis=1)
    return np.round((a_NxD * b_NxD).sum(1) / np.where(norms_N == 0, 1.0, norms_N), DECIMALS)
