"""Ours and transformers' on the same weights: the same answers both ways, the same tensors after a round trip."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from posenc_jax.interop.exporting import write_model
from posenc_jax.interop.importing import read_model
from tests.interop.theirs import assert_same, make, our_answers, rows, their_answers, transformers

MODELS = [
    ("bert_tiny", "BertModel"),
    ("bert_base", "BertForPreTraining"),
    ("bert_tiny", "BertForMaskedLM"),
    ("bert_tiny", "BertForNextSentencePrediction"),
    ("roberta_tiny", "RobertaModel"),
    ("roberta_base", "RobertaForMaskedLM"),
    ("electra_tiny", "ElectraModel"),
    ("electra_small", "ElectraForPreTraining"),
    ("electra_base", "ElectraForPreTraining"),
    ("electra_small_generator", "ElectraForMaskedLM"),
    ("electra_base_generator", "ElectraForMaskedLM"),
    ("convbert_tiny", "ConvBertModel"),
    ("convbert_small", "ConvBertForMaskedLM"),
    ("convbert_medium_small", "ConvBertForMaskedLM"),
    ("convbert_base", "ConvBertForMaskedLM"),
]


@pytest.fixture(scope="module", params=MODELS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def theirs(request, tmp_path_factory):
    """A model of transformers, and the folder it was saved in."""
    folder = tmp_path_factory.mktemp(request.param[0])
    model = make(*request.param)
    model.save_pretrained(folder)
    return model, folder


@pytest.fixture(scope="module")
def imported(theirs):
    return read_model(theirs[1])


def test_an_imported_model_answers_as_transformers_does(theirs, imported):
    model, _ = theirs
    batch = rows(model.config.pad_token_id, model.config.type_vocab_size)
    answers = their_answers(model, batch)
    if "NextSentence" in type(model).__name__:
        del answers["head"]  # its logits are of whole rows
    assert_same(our_answers(imported.model, imported.params, batch), answers, batch)


def test_a_round_trip_gives_back_every_tensor_bit_for_bit(theirs, imported, tmp_path):
    model, folder = theirs
    name = write_model(tmp_path, imported.family, imported.model, imported.params, model.config.pad_token_id)
    assert name == type(model).__name__
    before, after = (load_file(place / "model.safetensors") for place in (folder, tmp_path))
    assert before.keys() == after.keys()
    for key, tensor in before.items():
        np.testing.assert_array_equal(after[key], tensor, err_msg=key)


def test_what_is_written_loads_and_answers_as_before(theirs, imported, tmp_path):
    model, _ = theirs
    write_model(tmp_path, imported.family, imported.model, imported.params, model.config.pad_token_id)
    again, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = rows(model.config.pad_token_id, model.config.type_vocab_size)
    answers, answers_again = their_answers(model, batch), their_answers(again.eval(), batch)
    for name, value in answers.items():
        np.testing.assert_allclose(answers_again[name], value, rtol=0, atol=1e-6, err_msg=name)
    assert isinstance(transformers.AutoModel.from_pretrained(tmp_path), transformers.PreTrainedModel)
