"""Vectors of sentences and of words in sentences, from every layer of an encoder; and their cosines.

Texts become rows: ids and the slots whose mean is wanted. Rows run in batches of a few fixed shapes, and what they
leave is one vector a layer, so that memory is that of a batch and of the vectors, not of all states. Shape letters:
N texts or pairs, E layers, D width.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.config import ModelConfig
from posenc_jax.errors import UsageError
from posenc_jax.evaluation.glue.batches import SHORTEST
from posenc_jax.interop.pretrained import FrozenEncoder, Pretrained, layer_names
from posenc_jax.layers import Norm
from posenc_jax.model.encoder import all_states
from posenc_jax.parallel.mesh import BATCH_AXES, put_batch

BATCH_TOKENS = 4096
"""Slots of a batch: the states of a 12-layer base model take 160 MB."""
CHUNK = 2048
"""Pairs whose vectors are held at a time."""
DECIMALS = 9
"""Kept of a cosine. What is beyond is rounding, and would rank the pairs of an encoder that knows no difference."""

Transform = Callable[[np.ndarray], np.ndarray]
"""Float32 [N, E, D] -> the same shape, between encoding and cosines: zero some coordinates, subtract a mean. Layers
are in the order of `layer_names`. It must take each text by itself, for texts come in chunks. Whatever is linear in
the vector (as zeroing coordinates is) may be done after the mean over slots as well as before it."""


class Row(NamedTuple):
    """Ids with [CLS] and [SEP], and the slots [start, stop) whose mean is the vector."""

    ids: tuple[int, ...]
    start: int
    stop: int


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


def sentence_rows(pretrained: Pretrained, texts: Sequence[str], specials: bool = False) -> tuple[list[Row], int]:
    """Each text as `[CLS] words [SEP]`, cut at the encoder's length; and how many were cut.

    The mean is over the words' slots, with `specials` over those of [CLS] and [SEP], too.
    """
    tokenizer, room = pretrained.tokenizer, pretrained.length - 2
    words = tokenizer.encode_batch(list(texts))
    margin = 0 if specials else 1
    rows = [(tokenizer.cls, *ids[:room], tokenizer.sep) for ids in words]
    return [Row(ids, margin, len(ids) - margin) for ids in rows], sum(len(ids) > room for ids in words)


def mean_vectors(encoder: FrozenEncoder, rows: Sequence[Row], batch_tokens: int = BATCH_TOKENS) -> np.ndarray:
    """Float32 [N, E, D]: the mean over each row's slots in every layer of `layer_names`, in the order of `rows`.

    A row without such slots has a vector of zeros. Rows are grouped by length into shapes of 16, 32, 64, ... slots and
    about `batch_tokens` slots a batch. That changes speed alone, but where a ConvBERT's convolutions leak
    (`convolution.mask=False`, the published form): there padding is part of the model.
    """
    model = encoder.pretrained.model
    vectors_NxExD = np.zeros((len(rows), len(layer_names(model)), model.width), np.float32)
    waiting: list[tuple[np.ndarray, jax.Array]] = []
    for index_B, batch in _batches(encoder, rows, batch_tokens):
        waiting.append((index_B, _pooled(model, encoder.params, put_batch(batch, encoder.mesh))))
        if len(waiting) > 1:  # the devices work at the next while this one is fetched
            _fetch(vectors_NxExD, *waiting.pop(0))
    for index_B, pooled_BxExD in waiting:
        _fetch(vectors_NxExD, index_B, pooled_BxExD)
    return vectors_NxExD


def cosines(
    encoder: FrozenEncoder,
    rows_a: Sequence[Row],
    rows_b: Sequence[Row],
    layers: Sequence[int] | None = None,
    transform: Transform | None = None,
    chunk: int = CHUNK,
) -> np.ndarray:
    """Float64 [N, E]: the cosine of each pair in the layers at these places (None: all).

    A text that occurs again within `chunk` pairs is encoded once. The cosine with a vector of zeros is 0.
    """
    parts = []
    for first in range(0, len(rows_a), chunk):
        a, b = rows_a[first : first + chunk], rows_b[first : first + chunk]
        place = {row: number for number, row in enumerate(dict.fromkeys([*a, *b]))}
        vectors_NxExD = mean_vectors(encoder, list(place))
        if transform is not None:
            changed_NxExD = transform(vectors_NxExD)
            if changed_NxExD.shape != vectors_NxExD.shape:
                raise ValueError(f"the transform made {changed_NxExD.shape} of {vectors_NxExD.shape}")
            vectors_NxExD = changed_NxExD
        index_a, index_b = ([place[row] for row in side] for side in (a, b))
        chosen = range(vectors_NxExD.shape[1]) if layers is None else layers
        parts.append(np.stack([cosine(vectors_NxExD[index_a, e], vectors_NxExD[index_b, e]) for e in chosen], axis=1))
    return np.concatenate(parts)


def cosine(a_NxD: np.ndarray, b_NxD: np.ndarray) -> np.ndarray:
    """Float64 [N], to 9 decimals; 0 where either vector is zero."""
    a_NxD, b_NxD = (np.asarray(side, np.float64) for side in (a_NxD, b_NxD))
    norms_N = np.linalg.norm(a_NxD, axis=1) * np.linalg.norm(b_NxD, axis=1)
    return np.round((a_NxD * b_NxD).sum(1) / np.where(norms_N == 0, 1.0, norms_N), DECIMALS)


def _batches(
    encoder: FrozenEncoder, rows: Sequence[Row], batch_tokens: int
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Batches and the places in `rows` of their first rows; what fills a batch up is one of these again."""
    pad, limit = encoder.pretrained.tokenizer.pad, encoder.pretrained.length
    shares = int(np.prod([encoder.mesh.shape[axis] for axis in BATCH_AXES]))
    lengths_N = np.array([len(row.ids) for row in rows])
    low, slots = 0, min(SHORTEST, limit)
    while low < lengths_N.max(initial=0):
        index_N = np.flatnonzero((low < lengths_N) & (lengths_N <= slots))
        size = shares * max(1, batch_tokens // slots // shares)
        for start in range(0, len(index_N), size):
            index_B = index_N[start : start + size]
            chosen = [rows[place] for place in (*index_B, *[index_B[0]] * (size - len(index_B)))]
            tokens_BxL = np.full((size, slots), pad, np.int32)
            for row_L, row in zip(tokens_BxL, chosen, strict=True):
                row_L[: len(row.ids)] = row.ids
            lengths_B = np.array([len(row.ids) for row in chosen])
            yield (
                index_B,
                {
                    "tokens": tokens_BxL,
                    "segments": (np.arange(slots)[None] < lengths_B[:, None]).astype(np.int32),
                    "span": np.array([(row.start, row.stop) for row in chosen], np.int32),
                },
            )
        low, slots = slots, min(slots * 2, limit)


@functools.partial(jax.jit, static_argnums=0)
def _pooled(model: ModelConfig, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    states_ExBxLxD = all_states(model, params, batch["tokens"], batch["segments"])
    if model.norm == "pre":
        final_norm = Norm(model, states_ExBxLxD.dtype)
        last_BxLxD = final_norm.apply({"params": params["final_norm"]}, states_ExBxLxD[-1])
        states_ExBxLxD = jnp.concatenate([states_ExBxLxD, last_BxLxD[None]])
    slot_1xL = jnp.arange(batch["tokens"].shape[1])[None]
    wanted_BxL = (batch["span"][:, :1] <= slot_1xL) & (slot_1xL < batch["span"][:, 1:])
    wanted_BxLx1 = wanted_BxL[:, :, None]
    sums_ExBxD = jnp.where(wanted_BxLx1[None], states_ExBxLxD, 0).sum(2, dtype=jnp.float32)
    count_1xBx1 = jnp.maximum(wanted_BxL.sum(1), 1).astype(jnp.float32)[None, :, None]
    return (sums_ExBxD / count_1xBx1).swapaxes(0, 1)


def _fetch(vectors_NxExD: np.ndarray, index_B: np.ndarray, pooled_BxExD: jax.Array) -> None:
    vectors_NxExD[index_B] = np.asarray(pooled_BxExD)[: len(index_B)]
