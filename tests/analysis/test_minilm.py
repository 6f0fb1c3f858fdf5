"""A real checkpoint: moments, mean vectors and extremum shares of MiniLM are those of transformers' hidden states."""

import numpy as np
import pytest

from posenc_jax.analysis.outliers import extremum_share, layer_norms, mean_vectors
from posenc_jax.analysis.states import moments_of, states_of
from posenc_jax.interop.importing import import_hf
from posenc_jax.interop.pretrained import load_encoder
from tests.interop.theirs import transformers
from tests.real_data import minilm
from tests.tiny_workdirs import sentences

TEXTS = [
    "Nearly every positional encoding that anybody ever published was at some time said to be the best of them all.",
    'The naïve café-owner said: "It\'s 100% unbelievable!"',
    *sentences(28, 0, 24),
]


@pytest.fixture(scope="module")
def theirs():
    """Float64 [7, N, 384] of transformers, each text alone, and which tokens are [CLS] or [SEP]."""
    import torch

    model = transformers.AutoModel.from_pretrained(minilm()).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    rows, special = [], []
    with torch.no_grad():
        for text in TEXTS:
            found = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
            rows.append(torch.cat(found).numpy().astype(np.float64))
            special += [True, *[False] * (rows[-1].shape[1] - 2), True]
    return np.concatenate(rows, axis=1), np.array(special)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    run = tmp_path_factory.mktemp("minilm") / "run"
    import_hf(minilm(), run)
    return load_encoder(run)


def test_states_moments_and_shares_are_those_of_transformers(encoder, theirs):
    kept = states_of(encoder, TEXTS)
    states, special_N = theirs
    np.testing.assert_array_equal(kept.special_N, special_N)
    np.testing.assert_allclose(kept.states_ExNxD, states, rtol=0, atol=1e-4)
    for special in (True, False):
        expected = states[:, special | ~special_N]
        streamed = moments_of(encoder, TEXTS, special=special)
        chosen = kept.states_ExNxD[:, special | ~special_N]
        assert streamed.count == expected.shape[1]
        np.testing.assert_allclose(streamed.mean_ExD, expected.mean(1), rtol=0, atol=1e-4)
        np.testing.assert_allclose(streamed.variance_ExD, expected.var(1), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(mean_vectors(chosen), expected.mean(1), rtol=0, atol=1e-4)
        shares = extremum_share(chosen)
        streams = streamed.min_share_ExD, streamed.max_share_ExD
        for found, whole, find in zip(streams, shares, (np.argmin, np.argmax), strict=True):
            counted = [np.bincount(places, minlength=384) / expected.shape[1] for places in find(expected, axis=2)]
            np.testing.assert_allclose(found, counted, rtol=0, atol=1e-4)
            np.testing.assert_allclose(whole, counted, rtol=0, atol=1e-4)
    assert np.abs(expected.mean(1)).max() > 0.5


def test_layer_norms_of_an_imported_model_are_in_their_places(encoder):
    model = transformers.AutoModel.from_pretrained(minilm())
    scale, bias = layer_norms(encoder.params)
    for number, layer in enumerate(model.encoder.layer):
        for place, norm in enumerate((layer.attention.output.LayerNorm, layer.output.LayerNorm)):
            np.testing.assert_array_equal(scale[number, place], norm.weight.detach().numpy())
            np.testing.assert_array_equal(bias[number, place], norm.bias.detach().numpy())
