"""Which words are hidden and what stands in their place; on the device, inside jit."""

import jax
import jax.numpy as jnp

from posenc_jax.config import MlmConfig
from posenc_jax.data.tokenizer import OURS, Specials


def predictions_per_row(length: int, rate: float) -> int:
    """Most words predicted in a row of `length` slots: the static M of every array of predictions."""
    return int(length * rate) + 1


def mask_tokens(
    key: jax.Array,
    tokens_BxL: jax.Array,
    row_B: jax.Array,
    vocab_size: int,
    config: MlmConfig,
    specials: Specials = OURS,
) -> dict[str, jax.Array]:
    """Hides words of each row: they become [MASK], or in the config's shares a random ordinary word, or stay.

    Returns "tokens" [B, L] with the words hidden, "predicted" [B, M] their slots, "target" [B, M] the words,
    "predicted_weight" float32 [B, M], 0 where a row predicts fewer than M. A row predicts floor(rate * n + U[0, 1))
    of its n candidates (the count of the TUPE code), drawn without replacement. Candidates are ordinary words, with
    `mask_special` [CLS] and [SEP] too, never padding. What hides a row depends on `key` and its number in `row_B`
    only: not on the batch around it, nor on devices. `specials` are the tokenizer's.
    """
    most = predictions_per_row(tokens_BxL.shape[1], config.rate)

    def mask_row(tokens_L: jax.Array, row: jax.Array) -> dict[str, jax.Array]:
        choose, count, replace, draw = jax.random.split(jax.random.fold_in(key, row), 4)
        is_hidden_type_L = tokens_L != specials.pad if config.mask_special else ~is_special(tokens_L, specials)
        score_L = jnp.where(is_hidden_type_L, jax.random.uniform(choose, tokens_L.shape), -1.0)
        _, predicted_M = jax.lax.top_k(score_L, most)
        wanted = jnp.floor(config.rate * is_hidden_type_L.sum() + jax.random.uniform(count))
        is_used_M = (jnp.arange(most) < wanted) & is_hidden_type_L[predicted_M]
        target_M = tokens_L[predicted_M]
        lot_M = jax.random.uniform(replace, (most,))
        word_M = jax.random.randint(draw, (most,), 0, vocab_size - len(specials))
        for special in sorted(specials):  # to the ids that are ordinary words
            word_M += word_M >= special
        changed_M = jnp.where(lot_M < 1 - config.random_share - config.kept_share, specials.mask, word_M)
        hidden_M = jnp.where(lot_M < 1 - config.kept_share, changed_M, target_M)
        tokens_L = tokens_L.at[predicted_M].set(jnp.where(is_used_M, hidden_M, target_M))
        return {
            "tokens": tokens_L,
            "predicted": predicted_M,
            "target": target_M,
            "predicted_weight": is_used_M.astype(jnp.float32),
        }

    return jax.vmap(mask_row)(tokens_BxL, row_B)


def is_special(tokens: jax.Array, specials: Specials = OURS) -> jax.Array:
    """True at [PAD], [CLS], [SEP] and [MASK]; an unknown word is a word."""
    pad, _, cls, sep, mask = specials
    return (tokens == pad) | (tokens == cls) | (tokens == sep) | (tokens == mask)
