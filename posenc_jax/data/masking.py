"""Which words are hidden and what stands in their place; on the device, inside jit."""

from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.config import MlmConfig
from posenc_jax.data.tokenizer import OURS, Specials

SLACK = {"token": 1, "word": 5, "span": 13}
"""Predictions beyond the share of a full row, so that the last word or span drawn mostly fits in whole."""


def predictions_per_row(length: int, config: MlmConfig) -> int:
    """Most words predicted in a row of `length` slots: the static M of every array of predictions."""
    if config.with_replacement:
        return max(1, int((config.rate + 0.005) * length))  # convbert_and_electra.md 3.1
    return min(length, int(length * config.rate) + SLACK[config.unit])


def mask_tokens(
    key: jax.Array,
    tokens_BxL: jax.Array,
    row_B: jax.Array,
    vocab_size: int,
    config: MlmConfig,
    specials: Specials = OURS,
    is_start_V: jax.Array | None = None,
) -> dict[str, jax.Array]:
    """Hides words of each row: they become [MASK], or in the config's shares a random ordinary word, or stay.

    Returns "tokens" [B, L] with the words hidden, "predicted" [B, M] their slots, "target" [B, M] the words,
    "predicted_weight" float32 [B, M], 0 where a row predicts fewer than M. Candidates are ordinary words, with
    `mask_special` [CLS] and [SEP] too, never padding. What hides a row depends on `key` and its number in `row_B`
    only: not on the batch around it, nor on devices. `specials` are the tokenizer's.

    A row predicts floor(rate * n + U[0, 1)) of its n candidates (the count of the TUPE code), drawn without
    replacement. Units of several tokens (`is_start_V` says which tokens begin a word) are drawn whole in a random
    order; the one that reaches rate * n is taken with the probability that makes rate * n tokens the mean (our choice).
    With replacement it is as ELECTRA's code has it (convbert_and_electra.md 3.1).
    """
    most = predictions_per_row(tokens_BxL.shape[1], config)

    def mask_row(tokens_L: jax.Array, row: jax.Array) -> dict[str, jax.Array]:
        choose, count, replace, draw = jax.random.split(jax.random.fold_in(key, row), 4)
        is_candidate_L = tokens_L != specials.pad if config.mask_special else ~is_special(tokens_L, specials)
        if config.with_replacement:
            number = (tokens_L != specials.pad).sum()
            predicted_M, is_used_M = _draw_with_replacement(choose, is_candidate_L, number, most, config.rate)
        else:
            unit_L = _units(jax.random.fold_in(draw, 1), tokens_L, is_candidate_L, is_start_V, config)
            wanted = config.rate * is_candidate_L.sum()
            predicted_M, is_used_M = _draw(choose, count, is_candidate_L, unit_L, wanted, most)
        target_M = tokens_L[predicted_M]
        lot_M = jax.random.uniform(replace, (most,))
        word_M = jax.random.randint(draw, (most,), 0, vocab_size - len(specials))
        for special in sorted(specials):  # to the ids that are ordinary words
            word_M += word_M >= special
        is_mask_M = lot_M < 1 - config.random_share - config.kept_share
        is_changed_M = is_used_M & (lot_M < 1 - config.kept_share)
        hidden_M = jnp.where(is_mask_M, specials.mask, word_M)
        # What is not changed is written nowhere: a place drawn twice is changed if either draw says so.
        nowhere = tokens_L.shape[0]
        return {
            "tokens": tokens_L.at[jnp.where(is_changed_M, predicted_M, nowhere)].set(hidden_M, mode="drop"),
            "predicted": predicted_M,
            "target": target_M,
            "predicted_weight": is_used_M.astype(jnp.float32),
        }

    return jax.vmap(mask_row)(tokens_BxL, row_B)


def _units(
    key: jax.Array, tokens_L: jax.Array, is_candidate_L: jax.Array, is_start_V: jax.Array | None, config: MlmConfig
) -> jax.Array | None:
    """Number of the word or span each token is of; None where each is its own."""
    if config.unit == "token":
        return None
    is_after_special_L = jnp.concatenate([jnp.ones(1, bool), ~is_candidate_L[:-1]])
    is_start_L = is_start_V[tokens_L] | is_after_special_L
    if config.unit == "span":  # each word begins a new span with the same probability: lengths are geometric
        is_new_L = jax.random.uniform(key, tokens_L.shape) < 1 / config.span_words
        is_start_L = is_start_L & (is_new_L | is_after_special_L)
    return jnp.cumsum(is_start_L | ~is_candidate_L)


def _draw(
    choose: jax.Array, count: jax.Array, is_candidate_L: jax.Array, unit_L: jax.Array | None, wanted: Any, most: int
) -> tuple[jax.Array, jax.Array]:
    """Slots [M] in random order, a unit's together, and which of them are predicted: `wanted` in the mean."""
    lot_L = jax.random.uniform(choose, is_candidate_L.shape)
    length = len(lot_L)
    if unit_L is None:
        unit_L = jnp.arange(length)
    else:
        lot_L = lot_L[unit_L - unit_L[0]]
    _, predicted_M = jax.lax.top_k(jnp.where(is_candidate_L, lot_L, -1.0), most)
    size_U = jnp.zeros(length + 1, jnp.int32).at[unit_L].add(1)
    unit_M, place_M = unit_L[predicted_M], jnp.arange(most)
    is_first_M = jnp.concatenate([jnp.ones(1, bool), unit_M[1:] != unit_M[:-1]])
    before_M, size_M = jax.lax.cummax(jnp.where(is_first_M, place_M, 0)), size_U[unit_M]
    fits_M = (before_M + size_M <= wanted + jax.random.uniform(count) * size_M) & (before_M + size_M <= most)
    return predicted_M, fits_M & is_candidate_L[predicted_M]


def _draw_with_replacement(
    key: jax.Array, is_candidate_L: jax.Array, number: jax.Array, most: int, rate: float
) -> tuple[jax.Array, jax.Array]:
    """ELECTRA's slots [M], independent draws, of which the first round(rate * `number` of tokens) are used."""
    logits_L = jnp.where(is_candidate_L, 0.0, -jnp.inf)
    predicted_M = jax.random.categorical(key, logits_L, shape=(most,))
    used = jnp.clip(jnp.round(rate * number), 1, most)
    return predicted_M, (jnp.arange(most) < used) & is_candidate_L.any()


def is_special(tokens: jax.Array, specials: Specials = OURS) -> jax.Array:
    """True at [PAD], [CLS], [SEP] and [MASK]; an unknown word is a word."""
    pad, _, cls, sep, mask = specials
    return (tokens == pad) | (tokens == cls) | (tokens == sep) | (tokens == mask)
