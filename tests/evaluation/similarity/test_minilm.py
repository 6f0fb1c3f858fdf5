"""A real checkpoint, all-MiniLM-L6-v2: vectors of every layer as transformers makes them, and the published score."""

import numpy as np
import pytest

from posenc_jax.analysis.mean_vectors import mean_vectors, sentence_rows
from posenc_jax.data.sts import Pairs, StsSet, load_sts
from posenc_jax.data.wic import load_wic
from posenc_jax.evaluation.similarity.sts import score_sets
from posenc_jax.evaluation.similarity.wic import word_rows
from posenc_jax.interop.importing import import_hf
from posenc_jax.interop.pretrained import load_encoder
from tests.interop.theirs import torch, transformers
from tests.real_data import DATA, minilm

SENTENCES = [
    "A man is playing a guitar.",
    'The naïve café-owner, 東京-born, said: "It\'s 100% masked!"',
    "Nearly every positional encoding that anybody ever published was at some time said to be the best of them all, "
    "and it was true of the tables in which it stood.",
    "no",
]


@pytest.fixture(scope="module")
def folder():
    return minilm()


@pytest.fixture(scope="module")
def encoder(folder, tmp_path_factory):
    run = tmp_path_factory.mktemp("minilm") / "run"
    import_hf(folder, run)
    return load_encoder(run)


@pytest.fixture(scope="module")
def theirs(folder):
    model = transformers.AutoModel.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def their_states(theirs, sentence: str) -> tuple[np.ndarray, object]:
    """[layers + 1, slots, width] of one sentence alone, and its encoding."""
    model, tokenizer = theirs
    encoded = tokenizer(sentence, return_tensors="pt")
    with torch.no_grad():
        return torch.stack(model(**encoded, output_hidden_states=True).hidden_states)[:, 0].numpy(), encoded


def test_sentence_vectors_of_every_layer_are_those_of_transformers(encoder, theirs):
    inner = mean_vectors(encoder, sentence_rows(encoder.pretrained, SENTENCES)[0], 256)
    whole = mean_vectors(encoder, sentence_rows(encoder.pretrained, SENTENCES, specials=True)[0], 256)
    for sentence, ours_inner, ours_whole in zip(SENTENCES, inner, whole, strict=True):
        states, _ = their_states(theirs, sentence)
        assert states.shape[0] == ours_inner.shape[0] == 7 and states.std() > 0.1
        np.testing.assert_allclose(ours_inner, states[:, 1:-1].mean(1), rtol=0, atol=1e-4)
        np.testing.assert_allclose(ours_whole, states.mean(1), rtol=0, atol=1e-4)


def test_word_vectors_of_every_layer_are_those_of_transformers(encoder, theirs):
    """The slots by the word numbers of their tokenizer."""
    if not (DATA / "wic").is_dir():
        pytest.skip("WiC is not here")
    places = load_wic(DATA / "wic", "dev").places_a[:12]
    rows, _ = word_rows(encoder.pretrained, places)
    vectors = mean_vectors(encoder, rows, 256)
    for place, row, ours in zip(places, rows, vectors, strict=True):
        states, encoded = their_states(theirs, place.text)
        numbers = encoded.word_ids(0)
        word = encoded.char_to_word(place.start)
        slots = [slot for slot, number in enumerate(numbers) if number == word]
        assert [*range(row.start, row.stop)] == slots
        np.testing.assert_allclose(ours, states[:, slots].mean(1), rtol=0, atol=1e-4)


def test_similarities_agree_with_people_as_transformers_measured_them(encoder):
    """STS-B dev, mean with [CLS] and [SEP], last layer: 0.8672 by transformers for all 1,500 pairs."""
    if not (DATA / "glue" / "STS-B" / "dev.tsv").is_file():
        pytest.skip("STS-B is not here")
    sets, _ = load_sts(DATA / "glue", "dev")
    (part,) = sets[0].parts
    assert len(part) == 1500
    few = Pairs("dev", part.texts_a[:80], part.texts_b[:80], part.scores_N[:80])
    record = score_sets(encoder, [StsSet("STS-B", [few], (), "")], "last", specials=True)
    assert record["sets"][0]["all"]["spearman"][0] > 80
