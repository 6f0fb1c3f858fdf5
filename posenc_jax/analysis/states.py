"""Hidden states of every token in every layer of any encoder: kept, or reduced to their moments in one pass.

Shape letters: B rows of a batch, L slots, D width, E layers counted with the embedding output, N tokens.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.analysis.checks import check_finite
from posenc_jax.analysis.texts import Batch, MarkedText, batches, mark_texts
from posenc_jax.config import ModelConfig
from posenc_jax.interop.pretrained import FrozenEncoder, layer_names, layer_states
from posenc_jax.parallel.forward import jit_forward
from posenc_jax.parallel.mesh import BATCH_AXES, put_batch

Encode = Callable[[np.ndarray, np.ndarray], Any]
"""Any encoder: ids [B, L] and segments [B, L], 0 at padding, -> states [E, B, L, D], NumPy's or JAX's."""
MAX_TOKENS = 50_000
"""Kept at most: of a base model (13 x 768) 2 GB."""


@dataclasses.dataclass(frozen=True)
class TokenStates:
    """The states of N tokens, in the order of the texts; padding is never among them."""

    states_ExNxD: np.ndarray
    """Float32; 0 is the embedding output."""
    sentence_N: np.ndarray
    """Int32: number of the text, counted from 0 over all that were read."""
    position_N: np.ndarray
    """Int32: slot in the row; 0 is [CLS]."""
    token_N: np.ndarray
    """Int32: id."""
    word_N: np.ndarray
    """Int32: number of the word within its text, which all its subwords share; -1 for [CLS] and [SEP]."""
    special_N: np.ndarray
    """Bool: [CLS] or [SEP]."""
    punctuation_N: np.ndarray
    """Bool: of a word without a letter or digit."""
    words: Mapping[int, tuple[str, ...]]
    """words[sentence][word] is the text of a word; empty where the texts are not known."""
    layers: tuple[str, ...]
    """Names of the E layers, as `interop.pretrained.layer_names` has them."""

    def __post_init__(self) -> None:
        layers, tokens, _ = self.states_ExNxD.shape
        marks = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name[-2:] == "_N"}
        wrong = {name: marks_N.shape for name, marks_N in marks.items() if marks_N.shape != (tokens,)}
        if wrong or len(self.layers) != layers:
            raise ValueError(f"states {self.states_ExNxD.shape} with marks {wrong}, {len(self.layers)} names of layers")

    def __len__(self) -> int:
        return len(self.token_N)

    def take(self, index_N: np.ndarray) -> Self:
        """The tokens at these places, or where a mask is true."""
        marks = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name[-2:] == "_N"}
        taken = {name: marks_N[index_N] for name, marks_N in marks.items()}
        return dataclasses.replace(self, states_ExNxD=self.states_ExNxD[:, index_N], **taken)

    def word_text(self, token: int) -> str:
        """The text of the word that the token at this place is of; "" for a special one."""
        word = int(self.word_N[token])
        return self.words[int(self.sentence_N[token])][word] if word >= 0 else ""


@dataclasses.dataclass(frozen=True)
class Moments:
    """What one pass over tokens leaves of every layer; float64."""

    count: int
    """Tokens."""
    mean_ExD: np.ndarray
    variance_ExD: np.ndarray
    """Of the tokens themselves: divided by their count."""
    min_share_ExD: np.ndarray
    """Share of the tokens whose smallest value is the one in this dimension (Luo et al. 2021, 3.1); of equals the
    first dimension counts."""
    max_share_ExD: np.ndarray


def encode_with(frozen: FrozenEncoder) -> Encode:
    """The states of a frozen encoder, in the layers of `layer_names`. It puts its own [PAD] where segments are 0."""
    model, mesh, pad = frozen.pretrained.model, frozen.mesh, frozen.pretrained.tokenizer.pad
    shares = math.prod(mesh.shape[axis] for axis in BATCH_AXES)

    def encode(tokens_BxL: np.ndarray, segments_BxL: np.ndarray) -> jax.Array:
        rows = len(tokens_BxL)
        batch = {"tokens": np.where(segments_BxL > 0, tokens_BxL, pad), "segments": segments_BxL}
        if missing := -rows % shares:  # every device takes as many
            batch = {name: np.pad(array_BxL, ((0, missing), (0, 0)), "edge") for name, array_BxL in batch.items()}
        states_ExBxLxD = _encoder_states(model, frozen.params, put_batch(batch, mesh))
        return states_ExBxLxD[:, :rows] if missing else states_ExBxLxD

    return encode


def collect_states(
    encode: Encode,
    texts: Iterable[MarkedText],
    length: int,
    *,
    names: Sequence[str] | None = None,
    special: bool = True,
    max_tokens: int = MAX_TOKENS,
) -> TokenStates:
    """Every token's states in every layer; rows run in shapes of up to `length` slots.

    Takes whole texts in their order until the next would make more than `max_tokens` tokens: what is kept is
    E x `max_tokens` x D float32, and no more texts are read. A random part of a corpus is `texts.sample_texts`.
    `special` keeps [CLS] and [SEP], which are marked. `names` of the layers are by default 0, 1, ... Raises
    `ValueError` where not one text fits, `UserError` for states that are not finite.
    """
    kept = _first_texts(texts, special, max_tokens)
    marks = {name: np.concatenate([part[name] for _, part in kept]) for name in kept[0][1]}
    starts = np.cumsum([0, *(len(part["token_N"]) for _, part in kept)])
    start_of = {text.sentence: start for (text, _), start in zip(kept, starts[:-1], strict=True)}
    states_ExNxD = None
    run = lambda batch: encode(batch.tokens_BxL, batch.segments_BxL)  # noqa: E731
    for batch, states_ExBxLxD in _one_ahead(run, batches((text for text, _ in kept), length)):
        states_ExBxLxD = np.asarray(states_ExBxLxD)
        if states_ExNxD is None:
            layers, *_, width = states_ExBxLxD.shape
            states_ExNxD = np.empty((layers, starts[-1], width), np.float32)
        for row, text in enumerate(batch.texts):
            place_K = np.flatnonzero(special | ~text.special_L)
            start = start_of[text.sentence]
            states_ExNxD[:, start : start + len(place_K)] = states_ExBxLxD[:, row, place_K]
    words = {text.sentence: text.words for text, _ in kept}
    names = tuple(names or map(str, range(len(states_ExNxD))))
    check_finite([np.isfinite(layer_NxD).all() for layer_NxD in states_ExNxD], names)
    return TokenStates(states_ExNxD=states_ExNxD, words=words, layers=names, **marks)


def stream_moments(encode: Encode, texts: Iterable[MarkedText], length: int, *, special: bool) -> Moments:
    """Moments of all tokens of any number of texts, [CLS] and [SEP] among them or not: one pass that keeps two batches.

    A batch is reduced where its states lie, in float32 about its own mean; batches are joined in float64 (Chan, Golub
    and LeVeque 1983). Raises `ValueError` where there is no token, `UserError` for states that are not finite.
    """

    def reduced(batch: Batch) -> _BatchMoments:
        kept_BxL = np.zeros(batch.tokens_BxL.shape, bool)
        for kept_L, text in zip(kept_BxL, batch.texts, strict=False):
            kept_L[: len(text.ids_L)] = special | ~text.special_L
        return _batch_moments(encode(batch.tokens_BxL, batch.segments_BxL), kept_BxL)

    count, mean, squares, lowest, highest = 0, 0.0, 0.0, 0, 0
    for _, part in _one_ahead(reduced, batches(texts, length)):
        part = _BatchMoments(*(np.asarray(value, np.float64) for value in part))
        more = int(part.count)
        if not more:
            continue
        apart = part.mean_ExD + part.rest_ExD - mean
        mean = mean + apart * more / (count + more)
        squares = squares + part.squares_ExD + apart**2 * count * more / (count + more)
        count, lowest, highest = count + more, lowest + part.lowest_ExD, highest + part.highest_ExD
    if not count:
        raise ValueError("there is no token to take moments of")
    check_finite(np.isfinite(squares).all(1), [*map(str, range(len(mean)))])
    return Moments(count, mean, squares / count, lowest / count, highest / count)


def states_of(frozen: FrozenEncoder, texts: Iterable[str], **options: Any) -> TokenStates:
    """`collect_states` of a frozen encoder with its own tokenizer, row length and names of layers."""
    length = frozen.pretrained.length
    marked = mark_texts(frozen.pretrained.tokenizer, texts, length)
    return collect_states(encode_with(frozen), marked, length, names=layer_names(frozen.pretrained.model), **options)


def moments_of(frozen: FrozenEncoder, texts: Iterable[str], *, special: bool) -> Moments:
    """`stream_moments` of a frozen encoder with its own tokenizer and row length."""
    length = frozen.pretrained.length
    marked = mark_texts(frozen.pretrained.tokenizer, texts, length)
    return stream_moments(encode_with(frozen), marked, length, special=special)


def _first_texts(
    texts: Iterable[MarkedText], special: bool, max_tokens: int
) -> list[tuple[MarkedText, dict[str, np.ndarray]]]:
    """Texts and the marks of their tokens, as many whole ones as make at most `max_tokens`."""
    kept, tokens = [], 0
    for text in texts:
        place_K = np.flatnonzero(special | ~text.special_L)
        tokens += len(place_K)
        if tokens > max_tokens:
            break
        marks = {
            "sentence_N": np.full(len(place_K), text.sentence, np.int32),
            "position_N": place_K.astype(np.int32),
            "token_N": text.ids_L[place_K],
            "word_N": text.word_L[place_K],
            "special_N": text.special_L[place_K],
            "punctuation_N": text.punctuation_L[place_K],
        }
        kept.append((text, marks))
    if not kept:
        raise ValueError(
            f"the first text has {tokens:,} tokens, and at most {max_tokens:,} are kept"
            if tokens
            else "no text has a word"
        )
    return kept


def _one_ahead(compute: Callable[[Batch], Any], given: Iterable[Batch]) -> Iterator[tuple[Batch, Any]]:
    """Each batch and what `compute` makes of it; the devices work at the next while this one is fetched."""
    waiting = None
    for batch in given:
        result = batch, compute(batch)
        if waiting is not None:
            yield waiting
        waiting = result
    if waiting is not None:
        yield waiting


class _BatchMoments(NamedTuple):
    count: jax.Array
    mean_ExD: jax.Array
    rest_ExD: jax.Array
    """What rounding left out of the mean."""
    squares_ExD: jax.Array
    """Sum of the squared distances to the mean."""
    lowest_ExD: jax.Array
    highest_ExD: jax.Array


@functools.partial(jit_forward, static_argnums=0)
def _encoder_states(model: ModelConfig, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    return layer_states(model, params, batch["tokens"], batch["segments"])


@jax.jit
def _batch_moments(states_ExBxLxD: jax.Array, kept_BxL: jax.Array) -> _BatchMoments:
    states_ExBxLxD = states_ExBxLxD.astype(jnp.float32)
    kept_1xBxLx1, width = kept_BxL[None, :, :, None], states_ExBxLxD.shape[-1]
    count = kept_BxL.sum()
    divisor = jnp.maximum(count, 1).astype(jnp.float32)
    mean_Ex1x1xD = jnp.where(kept_1xBxLx1, states_ExBxLxD, 0).sum((1, 2), keepdims=True) / divisor
    centred_ExBxLxD = jnp.where(kept_1xBxLx1, states_ExBxLxD - mean_Ex1x1xD, 0)
    rest_ExD = centred_ExBxLxD.sum((1, 2)) / divisor
    squares_ExD = jnp.square(centred_ExBxLxD).sum((1, 2)) - divisor * jnp.square(rest_ExD)

    def counts(place_ExBxL: jax.Array) -> jax.Array:
        is_there_ExBxLxD = place_ExBxL[..., None] == jnp.arange(width)[None, None, None]
        return (is_there_ExBxLxD & kept_1xBxLx1).sum((1, 2))

    lowest_ExD, highest_ExD = (counts(find(states_ExBxLxD, axis=-1)) for find in (jnp.argmin, jnp.argmax))
    return _BatchMoments(count, mean_Ex1x1xD[:, 0, 0], rest_ExD, squares_ExD, lowest_ExD, highest_ExD)
