"""One vector a text from every layer of an encoder: the mean over chosen slots, without keeping all states.

Texts become rows: ids and the slots whose mean is wanted. Rows run in batches of a few fixed shapes, and what they
leave is one vector a layer, so that memory is that of a batch and of the vectors. Shape letters: N texts, E layers,
D width.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.analysis.checks import check_finite
from posenc_jax.config import ModelConfig
from posenc_jax.interop.pretrained import FrozenEncoder, Pretrained, layer_names, layer_states
from posenc_jax.parallel.forward import jit_forward
from posenc_jax.parallel.mesh import BATCH_AXES, put_batch

BATCH_TOKENS = 4096
"""Slots of a batch: the states of a 12-layer base model take 160 MB."""
SHORTEST = 16
"""Slots of the shortest shape; the others double up to the encoder's length."""


class Row(NamedTuple):
    """Ids with [CLS] and [SEP], and the slots [start, stop) whose mean is the vector."""

    ids: tuple[int, ...]
    start: int
    stop: int


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
    (`convolution.mask=False`, the published form): there padding is part of the model. Raises `UserError` for vectors
    that are not finite.
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
    check_finite(np.isfinite(vectors_NxExD).all((0, 2)), layer_names(model))
    return vectors_NxExD


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


@functools.partial(jit_forward, static_argnums=0)
def _pooled(model: ModelConfig, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    states_ExBxLxD = layer_states(model, params, batch["tokens"], batch["segments"])
    slot_1xL = jnp.arange(batch["tokens"].shape[1])[None]
    wanted_BxL = (batch["span"][:, :1] <= slot_1xL) & (slot_1xL < batch["span"][:, 1:])
    wanted_BxLx1 = wanted_BxL[:, :, None]
    sums_ExBxD = jnp.where(wanted_BxLx1[None], states_ExBxLxD, 0).sum(2, dtype=jnp.float32)
    count_1xBx1 = jnp.maximum(wanted_BxL.sum(1), 1).astype(jnp.float32)[None, :, None]
    return (sums_ExBxD / count_1xBx1).swapaxes(0, 1)


def _fetch(vectors_NxExD: np.ndarray, index_B: np.ndarray, pooled_BxExD: jax.Array) -> None:
    vectors_NxExD[index_B] = np.asarray(pooled_BxExD)[: len(index_B)]
