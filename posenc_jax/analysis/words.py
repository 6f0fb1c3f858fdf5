"""Subword vectors joined to vectors of words and of sentences.

Shape letters: E layers, N tokens, W words, S sentences, D width.
"""

import dataclasses
from typing import Literal

import numpy as np

from posenc_jax.analysis.checks import check_choice
from posenc_jax.analysis.states import TokenStates

Pooling = Literal["mean", "first", "last"]


def pool_words(states: TokenStates, how: Pooling = "mean") -> TokenStates:
    """One token a word, with the mean of its subwords' states or those of one subword; [CLS] and [SEP] are left out.

    Position and id are those of the first subword, with "last" of the last. The papers do not say how they pool
    (positional_artefacts.md, trap 9); the mean is our default. Raises `ValueError` where no token is of a word.
    """
    check_choice("how", how, Pooling)
    states = states.take(np.flatnonzero(states.word_N >= 0))
    if not len(states):
        raise ValueError("no token is of a word")
    order_N = np.lexsort((states.position_N, states.word_N, states.sentence_N))
    states = states.take(order_N)
    is_first_N = np.ones(len(states), bool)
    is_first_N[1:] = (np.diff(states.word_N) != 0) | (np.diff(states.sentence_N) != 0)
    first_W = np.flatnonzero(is_first_N)
    if how == "last":
        return states.take(np.append(first_W[1:], len(states)) - 1)
    if how == "first":
        return states.take(first_W)
    return dataclasses.replace(states.take(first_W), states_ExNxD=_means(states.states_ExNxD, first_W))


def pool_sentences(states: TokenStates, *, special: bool) -> tuple[np.ndarray, np.ndarray]:
    """Float32 [E, S, D], the mean of each sentence's tokens, [CLS] and [SEP] among them or not; and the numbers of the
    sentences [S], ascending. A sentence without such a token has no vector."""
    states = states.take(np.flatnonzero(special | ~states.special_N))
    states = states.take(np.argsort(states.sentence_N, kind="stable"))
    sentence_S, first_S = np.unique(states.sentence_N, return_index=True)
    return _means(states.states_ExNxD, first_S), sentence_S


def _means(states_ExNxD: np.ndarray, first_W: np.ndarray) -> np.ndarray:
    """Means over the tokens from each of these places to the next; summed in float64, a layer at a time."""
    count_Wx1 = np.diff(np.append(first_W, states_ExNxD.shape[1]))[:, None]
    means_ExWxD = np.empty((len(states_ExNxD), len(first_W), states_ExNxD.shape[2]), np.float32)
    for mean_WxD, states_NxD in zip(means_ExWxD, states_ExNxD, strict=True):
        mean_WxD[:] = np.add.reduceat(states_NxD, first_W, axis=0, dtype=np.float64) / count_Wx1
    return means_ExWxD
