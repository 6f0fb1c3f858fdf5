"""Which tokens the geometry is measured on: pairs of random ones, and the occurrences of a word.

Places along N, drawn once from a seed, so that all layers and variants are measured on the same tokens.
"""

from typing import Literal

import numpy as np

from posenc_jax.analysis.checks import check_choice
from posenc_jax.analysis.states import TokenStates

Scheme = Literal["one_token_per_sentence", "any_two_tokens"]
Unit = Literal["word", "token"]


def sample_pairs(
    states: TokenStates,
    n: int = 1000,
    scheme: Scheme = "one_token_per_sentence",
    *,
    exclude_special: bool = True,
    seed: int = 0,
) -> np.ndarray:
    """Int64 [P, 2], places of the tokens of each pair; never a token with itself.

    "one_token_per_sentence" is Luo et al.'s: 2 n sentences, no two the same, one random token of each, joined in
    pairs; of fewer sentences there are as many pairs as they give, P < n. "any_two_tokens" is Timkey & van
    Schijndel's: both uniform over all tokens, so that long sentences weigh more and a pair may lie in one sentence.
    Whether Luo et al. let special tokens take part is not known. Raises `ValueError` where no pair can be made.
    """
    check_choice("scheme", scheme, Scheme)
    rng = np.random.default_rng(seed)
    allowed_N = np.flatnonzero(~states.special_N) if exclude_special else np.arange(len(states))
    if scheme == "any_two_tokens":
        if len(allowed_N) < 2:
            raise ValueError(f"{len(allowed_N)} tokens to choose from make no pair")
        first_P = rng.integers(len(allowed_N), size=n)
        second_P = (first_P + rng.integers(1, len(allowed_N), size=n)) % len(allowed_N)
        return allowed_N[np.stack([first_P, second_P], axis=1)]
    ordered_N = allowed_N[np.argsort(states.sentence_N[allowed_N], kind="stable")]
    _, starts_S, lengths_S = np.unique(states.sentence_N[ordered_N], return_index=True, return_counts=True)
    pairs = min(n, len(starts_S) // 2)
    if not pairs:
        raise ValueError(f"{len(starts_S)} sentences make no pair of tokens of different sentences")
    chosen_S = rng.permutation(len(starts_S))[: 2 * pairs]
    return ordered_N[starts_S[chosen_S] + rng.integers(lengths_S[chosen_S])].reshape(pairs, 2)


def occurrences(
    states: TokenStates,
    min_sentences: int = 10,
    n_words: int = 1000,
    max_occurrences: int | None = None,
    *,
    unit: Unit = "word",
    exclude_punctuation: bool = True,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Words and the places of their occurrences, one a sentence: at most `n_words` of those in `min_sentences`.

    Luo et al.: 1,000 words in at least 10 different sentences. `unit` "word" takes the states of whole words
    (`pool_words`), as they are written; "token" takes subwords, each id a word (Ethayarajh's form, at least 5
    occurrences), named by its number. Of a word that a sentence repeats the first counts, punctuation is left out,
    and of more than `max_occurrences` some are drawn: our choices, the paper says nothing. Special tokens never take
    part. In alphabetical order; fewer words where there are fewer, none where there are none. Raises `ValueError` for
    "word" where the texts are not known, or a word has several rows.
    """
    check_choice("unit", unit, Unit)
    rng = np.random.default_rng(seed)
    allowed_N = np.flatnonzero(~states.special_N & ~(states.punctuation_N & exclude_punctuation))
    if unit == "word":
        _check_whole_words(states, allowed_N)
    places: dict[str, dict[int, int]] = {}
    for place in allowed_N.tolist():
        name = states.word_text(place) if unit == "word" else str(states.token_N[place])
        places.setdefault(name, {}).setdefault(int(states.sentence_N[place]), place)
    known = sorted(name for name, by_sentence in places.items() if len(by_sentence) >= min_sentences)
    chosen = sorted(rng.permutation(len(known))[:n_words].tolist())
    found = {known[number]: np.array([*places[known[number]].values()]) for number in chosen}
    if max_occurrences is None:
        return found
    return {name: np.sort(rng.permutation(index_O)[:max_occurrences]) for name, index_O in found.items()}


def _check_whole_words(states: TokenStates, allowed_N: np.ndarray) -> None:
    if not states.words:
        raise ValueError("the texts of these states are not known; take occurrences of unit='token'")
    of_word_Nx2 = np.stack([states.sentence_N[allowed_N], states.word_N[allowed_N]], axis=1)
    if len(np.unique(of_word_Nx2, axis=0)) < len(of_word_Nx2):
        raise ValueError("a word has several rows, its subwords; take pool_words(states) or unit='token'")
