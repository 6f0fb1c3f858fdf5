import numpy as np
import pytest

from posenc_jax.analysis.attention_maps import attention_maps
from posenc_jax.analysis.input_correlations import input_correlations
from posenc_jax.interop.importing import import_hf
from posenc_jax.interop.pretrained import load_pretrained
from posenc_jax.model.encoder import Encoder
from posenc_jax.training.checkpoint import read_params
from tests.oracle import softmax
from tests.real_data import minilm
from tests.variants import random_params, rows, small_model


@pytest.mark.parametrize("scheme, mixer, scan", [("shaw_values", "attention", False), ("tupe_r", "mixed", True)])
def test_every_row_of_every_layer_sums_to_one_over_the_words_of_its_segment(scheme, mixer, scan, rng):
    model = small_model(scheme, "dot_product", mixer, scan=scan)
    tokens, segments = rows(rng, batch=2, length=12)
    segments = np.array(segments)
    segments[0, 5:], segments[1, 9:] = 2, 0
    position = np.tile(np.arange(12), (2, 1))
    position[0, 5:] = np.arange(7)
    params = random_params(Encoder(model), tokens, segments)
    weights_ExBxHxLxL = attention_maps(model, params, tokens, segments, position)
    assert weights_ExBxHxLxL.shape == (2, 2, 3, 12, 12) and weights_ExBxHxLxL.dtype == np.float32
    np.testing.assert_allclose(weights_ExBxHxLxL.sum(-1), 1, atol=1e-5)
    assert (weights_ExBxHxLxL[:, 0, :, :5, 5:] == 0).all() and (weights_ExBxHxLxL[:, 0, :, 5:, :5] == 0).all()
    assert (weights_ExBxHxLxL[:, 1, :, :, 9:] == 0).all()


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    run = tmp_path_factory.mktemp("minilm") / "run"
    import_hf(minilm(), run)
    return load_pretrained(run), read_params(run)[0]["encoder"]


@pytest.fixture(scope="module")
def batch(imported):
    tokenizer = imported[0].tokenizer
    texts = [
        "A man is playing a guitar.",
        "Nearly every positional encoding was said to be the best of them all.",
        "no",
    ]
    ids = [[tokenizer.cls, *row, tokenizer.sep] for row in tokenizer.encode_batch(texts)]
    tokens_BxL = np.zeros((3, 20), np.int64)
    for row_L, row in zip(tokens_BxL, ids, strict=True):
        row_L[: len(row)] = row
    return tokens_BxL, (np.arange(20)[None] < np.array([[len(row)] for row in ids])).astype(np.int64)


def test_a_real_checkpoints_weights_are_those_of_transformers(imported, batch):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    theirs = transformers.AutoModel.from_pretrained(minilm(), attn_implementation="eager").eval()
    tokens_BxL, segments_BxL = batch
    with torch.no_grad():
        answer = theirs(
            input_ids=torch.from_numpy(tokens_BxL),
            attention_mask=torch.from_numpy(segments_BxL),
            output_attentions=True,
        )
    want_ExBxHxLxL = np.stack([layer.numpy() for layer in answer.attentions])
    pretrained, params = imported
    got_ExBxHxLxL = attention_maps(pretrained.model, params, tokens_BxL, segments_BxL)
    assert got_ExBxHxLxL.shape == (6, 3, 12, 20, 20)
    real_BxL = segments_BxL > 0
    for row, is_word_L in enumerate(real_BxL):
        got, want = (weights[:, row, :, is_word_L] for weights in (got_ExBxHxLxL, want_ExBxHxLxL))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    assert want_ExBxHxLxL.max() > 0.9


def test_the_four_correlations_of_a_real_checkpoint_are_the_first_layers_logits(imported, batch):
    """Softmax of their sum is what the model's first layer attends with."""
    pretrained, params = imported
    tokens_BxL, segments_BxL = batch
    maps = input_correlations(pretrained.model, params, tokens_BxL)
    logits_BxHxLxL = np.where(segments_BxL[:, None, None] > 0, sum(maps.values()), -1e30)
    want_BxHxLxL = attention_maps(pretrained.model, params, tokens_BxL, segments_BxL)[0]
    np.testing.assert_allclose(softmax(logits_BxHxLxL), want_BxHxLxL, rtol=0, atol=2e-5)
