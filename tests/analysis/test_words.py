"""Vectors of words and sentences, against loops in float64."""

import numpy as np
import pytest

from posenc_jax.analysis.states import TokenStates
from posenc_jax.analysis.transforms import clip_dims
from posenc_jax.analysis.words import pool_sentences, pool_words


def tokens(rng, sentences=7, width=5):
    """Sentences of [CLS], words of one to three subwords, [SEP]."""
    rows = []
    for sentence in range(3, 3 + sentences):
        words = 1 if sentence in (4, 5, 8) else 4  # neighbours of one word each meet without their specials
        word_L = np.repeat(np.arange(words), rng.integers(1, 4, words))
        word_L = np.concatenate([[-1], word_L, [-1]])
        rows += [(sentence, position, word) for position, word in enumerate(word_L)]
    sentence_N, position_N, word_N = np.array(rows, np.int32).T
    count = len(rows)
    return TokenStates(
        states_ExNxD=rng.normal(size=(3, count, width)).astype(np.float32),
        sentence_N=sentence_N,
        position_N=position_N,
        token_N=np.arange(count, dtype=np.int32),
        word_N=word_N,
        special_N=word_N < 0,
        punctuation_N=word_N == 3,
        words={sentence: ("a", "b", "c", ".") for sentence in range(3, 3 + sentences)},
        layers=("0", "1", "2"),
    )


@pytest.mark.parametrize("how", ["mean", "first", "last"])
def test_a_word_is_pooled_from_its_own_subwords(how, rng):
    found = tokens(rng)
    shuffled = found.take(rng.permutation(len(found)))
    pooled = pool_words(shuffled, how)
    assert len(pooled) == 4 * 4 + 3 and not pooled.special_N.any()
    for n in range(len(pooled)):
        is_of_word_N = (found.sentence_N == pooled.sentence_N[n]) & (found.word_N == pooled.word_N[n])
        subwords = found.states_ExNxD[:, is_of_word_N].astype(np.float64)
        expected = {"mean": subwords.mean(1), "first": subwords[:, 0], "last": subwords[:, -1]}[how]
        np.testing.assert_allclose(pooled.states_ExNxD[:, n], expected, rtol=0, atol=1e-6)
        which = -1 if how == "last" else 0
        assert pooled.token_N[n] == found.token_N[is_of_word_N][which]
        assert pooled.position_N[n] == found.position_N[is_of_word_N][which]
        assert pooled.word_text(n) == "abc."[pooled.word_N[n]] and pooled.punctuation_N[n] == (pooled.word_N[n] == 3)


@pytest.mark.parametrize("special", [True, False])
def test_a_sentence_is_the_mean_of_its_tokens(special, rng):
    found = tokens(rng)
    means, numbers = pool_sentences(found.take(rng.permutation(len(found))), special=special)
    assert numbers.tolist() == list(range(3, 10))
    for place, number in enumerate(numbers):
        chosen = (found.sentence_N == number) & (special | ~found.special_N)
        expected = found.states_ExNxD[:, chosen].astype(np.float64).mean(1)
        np.testing.assert_allclose(means[:, place], expected, rtol=0, atol=1e-6)


def test_clipping_before_and_after_pooling_is_the_same(rng):
    found, clip = tokens(rng), clip_dims([1, 4])
    after = clip(pool_words(found).states_ExNxD)
    clipped = TokenStates(**{**vars(found), "states_ExNxD": clip(found.states_ExNxD)})
    np.testing.assert_array_equal(pool_words(clipped).states_ExNxD, after)
    assert (after[..., [1, 4]] == 0).all() and (after[..., 0] != 0).any()


def test_specials_alone_are_no_words(rng):
    found = tokens(rng)
    with pytest.raises(ValueError, match="no token is of a word"):
        pool_words(found.take(found.special_N))
