"""A real checkpoint, all-MiniLM-L6-v2: anisotropy, self- and intra-sentence similarity of every layer, computed anew in
float64 from transformers' hidden states."""

import itertools

import numpy as np
import pytest

from posenc_jax.analysis.geometry import anisotropy, intra_sentence_similarity, self_similarity
from posenc_jax.analysis.sampling import occurrences, sample_pairs
from posenc_jax.analysis.states import states_of
from posenc_jax.analysis.words import pool_words
from posenc_jax.interop.importing import import_hf
from posenc_jax.interop.pretrained import load_encoder
from tests.interop.theirs import torch, transformers
from tests.real_data import minilm
from tests.tiny_workdirs import sentences

SENTENCES = [f"{text} It is cold and unbelievably windswept!" for text in sentences(24, 11, 9)]
"""Rows of one shape, with words in many of them."""


@pytest.fixture(scope="module")
def folder():
    return minilm()


@pytest.fixture(scope="module")
def ours(folder, tmp_path_factory):
    run = tmp_path_factory.mktemp("minilm") / "run"
    import_hf(folder, run)
    return states_of(load_encoder(run), SENTENCES)


@pytest.fixture(scope="module")
def theirs(folder):
    """[7, slots, 384] of each sentence alone, and the number of each slot's word."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = []
    for text in SENTENCES:
        encoded = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states = torch.stack(model(**encoded, output_hidden_states=True).hidden_states)[:, 0]
        found.append((states.numpy().astype(np.float64), encoded.word_ids(0), encoded.input_ids[0].numpy()))
    return found


def cosine(u, v):
    return (u * v).sum(-1) / np.sqrt((u * u).sum(-1) * (v * v).sum(-1))


def their_vectors(theirs, states, index):
    """[7, n, 384], by sentence and slot."""
    return np.stack([theirs[states.sentence_N[place]][0][:, states.position_N[place]] for place in index], axis=1)


def test_the_tokens_are_theirs(ours, theirs):
    assert ours.states_ExNxD.shape == (7, sum(len(ids) for _, _, ids in theirs), 384)
    for sentence, (_, _, ids) in enumerate(theirs):
        assert ours.token_N[ours.sentence_N == sentence].tolist() == ids.tolist()


def test_anisotropy_is_that_of_transformers_states(ours, theirs):
    pairs = sample_pairs(ours, 12, seed=0)
    found = anisotropy(ours.states_ExNxD, pairs)
    expected = cosine(*(their_vectors(theirs, ours, pairs[:, side]) for side in (0, 1))).mean(1)
    np.testing.assert_allclose(found.mean_E, expected, rtol=0, atol=1e-4)
    assert found.count == 12 and expected.std() > 0.05


def test_self_similarity_is_that_of_transformers_states(ours, theirs):
    """Of subwords by their states, and of words by the mean of their subwords' states."""
    for states, unit in ((ours, "token"), (pool_words(ours), "word")):
        words = occurrences(states, 5, unit=unit)
        assert len(words) >= 8
        found = self_similarity(states.states_ExNxD, words)
        for place, index in enumerate(words.values()):
            vectors = their_vectors(theirs, states, index)
            if unit == "word":
                vectors = np.stack([their_word(theirs, states, one) for one in index], axis=1)
            expected = np.mean([cosine(vectors[:, i], vectors[:, j])
                                for i, j in itertools.combinations(range(len(index)), 2)], axis=0)  # fmt: skip
            np.testing.assert_allclose(found[:, place], expected, rtol=0, atol=1e-4)
    assert "unbelievably" in words and len(theirs[0][1]) > len(set(theirs[0][1]))  # a word of several subwords


def their_word(theirs, states, place):
    vectors, numbers, _ = theirs[states.sentence_N[place]]
    word = numbers[states.position_N[place]]
    return vectors[:, [slot for slot, number in enumerate(numbers) if number == word]].mean(1)


def test_intra_sentence_similarity_is_that_of_transformers_states(ours, theirs):
    words = ours.take(~ours.special_N)
    found = intra_sentence_similarity(words.states_ExNxD, words.sentence_N)
    for sentence, (vectors, _, _) in enumerate(theirs):
        inner = vectors[:, 1:-1]
        expected = cosine(inner, inner.mean(1, keepdims=True)).mean(1)
        np.testing.assert_allclose(found[:, sentence], expected, rtol=0, atol=1e-4)
