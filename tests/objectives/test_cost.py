"""Counts against the formulas, worked out by hand here."""

import dataclasses

import pytest

from posenc_jax.checks import config_from_dict
from posenc_jax.config_files import load_config
from posenc_jax.data.masking import predictions_per_row
from posenc_jax.objectives.cost import step_flops
from posenc_jax.objectives.rtd import generator_config

V = 30_522


def _layers(model, length):
    """Multiply-adds of a row: four projections, the feed-forward, queries by keys, weights by values."""
    d, wide = model.width, model.feed_forward_width
    return length * model.layers * (4 * d * d + 2 * d * wide + 2 * d * length)


def _mlm_head(model, masked):
    width = model.embedding_width or model.width
    return masked * (model.width * width + width * V)


def test_a_step_on_masked_words_costs_six_operations_a_parameter_used_and_word():
    config = load_config("configs/bert.py:bert_a,base", {"model.vocab_size": V})
    flops, model = step_flops(config, 512), config.model
    encoder = 6 * 256 * _layers(model, 512)
    head = 6 * 256 * _mlm_head(model, predictions_per_row(512, config.mlm))
    assert 1 < flops.encoder / encoder < 1.01
    assert 1 < flops.heads / head < 1.02
    assert flops.total == flops.encoder + flops.heads
    # BERT-base's famous 6 N D, N without its embeddings, is short of it by attention's products alone.
    assert 1 < flops.encoder / (6 * 85e6 * 256 * 512) < 1.13


def test_replaced_token_detection_pays_for_both_networks():
    config = load_config("configs/electra.py:electra,base", {"model.vocab_size": V})
    generator = generator_config(config.model, config.rtd)
    flops, masked = step_flops(config, 512), predictions_per_row(512, config.mlm)
    widening = 512 * generator.embedding_width * generator.width
    encoder = 6 * 256 * (_layers(config.model, 512) + _layers(generator, 512) + widening)
    heads = 6 * 256 * (_mlm_head(generator, masked) + 512 * (config.model.width**2 + config.model.width))
    assert 1 < flops.encoder / encoder < 1.02
    assert 1 < flops.heads / heads < 1.03  # with the sampling


@pytest.mark.parametrize("generator, encoders", [("uniform", 1), ("discriminator", 2)])
def test_other_generators_cost_no_encoder_or_a_whole_one(generator, encoders):
    alone = load_config("configs/electra.py:electra_mlm,tiny,length=64", {"model.vocab_size": 500})
    config = load_config(
        "configs/electra.py:electra,tiny,length=64", {"model.vocab_size": 500, "rtd.generator": generator}
    )
    assert step_flops(config, 64).encoder == encoders * step_flops(alone, 64).encoder


def test_rows_multiply_and_what_is_computed_again_does_not_count():
    config = load_config("configs/tupe.py:tupe_r,tiny,length=64", {"model.vocab_size": 500})
    plain = step_flops(config, 64)
    again = config_from_dict(dataclasses.asdict(config) | {"model": dataclasses.asdict(config.model) | {"remat": True}})
    assert step_flops(again, 64) == plain
    twice = dataclasses.replace(config, train=dataclasses.replace(config.train, batch_size=64, accumulate=2))
    assert step_flops(twice, 64).total == 2 * plain.total


def test_penalties_and_whole_words_are_counted_with_the_heads():
    changes = {"model.vocab_size": 500}
    plain = step_flops(load_config("configs/mth.py:mlm,tiny,length=64", changes), 64)
    both = step_flops(load_config("configs/mth.py:mth,tiny,length=64", changes), 64)
    words = step_flops(load_config("configs/mth.py:mlm,tiny,length=64", {**changes, "mlm.unit": "word"}), 64)
    assert both.encoder == plain.encoder == words.encoder
    assert both.heads > plain.heads
    assert words.heads > plain.heads  # more slots to predict in
