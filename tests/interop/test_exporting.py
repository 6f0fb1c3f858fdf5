"""Our own models as transformers computes them: folded where they are not plain, refused where they cannot be."""

import dataclasses

import pytest

from posenc_jax.config import CompatibilityConfig, ConvolutionConfig, ModelConfig, PositionConfig
from posenc_jax.errors import UserError
from posenc_jax.interop.architecture import check_exportable, choose_family
from posenc_jax.interop.exporting import write_model
from posenc_jax.interop.shapes import abstract_params
from tests.interop.theirs import VOCAB, assert_same, draw_params, our_answers, rows, their_answers, transformers

MODEL = ModelConfig(
    layers=2, width=24, heads=4, feed_forward_width=40, vocab_size=VOCAB, positions=PositionConfig(max_length=30)
)


def changed(**changes) -> ModelConfig:
    return dataclasses.replace(MODEL, **changes)


def pairwise(form="full") -> dict:
    return dict(compatibility=CompatibilityConfig("pairwise", form=form))


MIXED = dict(mixer="mixed", convolution=ConvolutionConfig(width=5, mask=False))
MODELS = {
    "plain": (changed(), "head", "BertForMaskedLM"),
    "token_types": (changed(token_types=2), "head", "BertForMaskedLM"),
    "symmetric": (changed(compatibility=CompatibilityConfig("symmetric")), "head", "BertForMaskedLM"),
    "pairwise": (changed(**pairwise()), "head", "BertForMaskedLM"),
    "pairwise_symmetrised": (changed(**pairwise("symmetrised")), "head", "BertForMaskedLM"),
    "pairwise_diagonal": (changed(**pairwise("diagonal")), "head", "BertForMaskedLM"),
    "embedding_width": (changed(embedding_width=16, **pairwise()), "head", "ElectraForMaskedLM"),
    "discriminator": (changed(), "rtd_head", "ElectraForPreTraining"),
    "mixed": (changed(**MIXED), "head", "ConvBertForMaskedLM"),
    "mixed_groups_pairwise": (
        changed(**MIXED, **pairwise(), feed_forward_groups=2, embedding_width=16),
        "head",
        "ConvBertForMaskedLM",
    ),
    "offset": (changed(positions=PositionConfig(max_length=30, offset=2)), "head", "RobertaForMaskedLM"),
    "offset_not_of_padding": (changed(positions=PositionConfig(max_length=30, offset=5)), "head", "BertForMaskedLM"),
}


@pytest.mark.parametrize("name", MODELS)
def test_transformers_answers_as_our_model_does(name, tmp_path):
    model, head, expected = MODELS[name]
    params = draw_params(abstract_params(model, ("encoder", head)))
    pad = 1 if name == "offset" else 0
    check_exportable(model)
    family = choose_family(model, set(params), pad)
    assert write_model(tmp_path, family, model, params, pad) == expected
    theirs, report = getattr(transformers, expected).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = rows(pad, max(1, model.token_types))
    assert_same(our_answers(model, params, batch), their_answers(theirs.eval(), batch), batch)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (dict(positions=PositionConfig("tupe")), "positions.scheme='tupe'"),
        (dict(positions=PositionConfig("learned+t5")), r"positions.scheme='learned\+t5'"),
        (dict(positions=PositionConfig("none")), "positions.scheme='none'"),
        (dict(norm="pre"), "norm='pre'"),
        (dict(feed_forward_groups=2), "feed_forward_groups=2"),
        (dict(mixer="mixed", convolution=ConvolutionConfig(kind="light")), "convolution.kind='light'"),
        (dict(mixer="mixed", convolution=ConvolutionConfig(head_ratio=4)), "convolution.head_ratio=4"),
        (dict(mixer="mixed", heads=1), "heads=1, not even"),
    ],
)
def test_what_transformers_has_no_place_for_is_refused_by_its_field(changes, field):
    with pytest.raises(UserError, match=f"model.{field}"):
        check_exportable(changed(**changes))
