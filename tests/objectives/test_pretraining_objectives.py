"""Whole runs of the objectives beside masked words: stopped and gone on, reported, handed to other libraries."""

import itertools
import json

import jax
import numpy as np
import pytest

from posenc_jax.__main__ import main
from posenc_jax.config_files import load_config
from posenc_jax.errors import UsageError
from posenc_jax.interop.pretrained import load_pretrained
from posenc_jax.objectives.pretraining import pretrain
from posenc_jax.training.checkpoint import read_params
from tests.tiny_rows import write_rows

SMALL = {
    "model.width": 16, "model.heads": 2, "model.feed_forward_width": 32, "model.norm": "post", "train.steps": 30,
    "train.batch_size": 8, "train.log_every": 5, "train.eval_every": 10, "train.eval_rows": 16,
    "train.checkpoint_every": 10, "optimizer.warmup": 5, "rtd.generator_size": 0.5, "rtd.generator_layers": 1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_rows(folder / "rows", train=90)
    return folder


def settings(folder, spec="configs/electra.py:electra,tiny,length=16", **overrides):
    given = {**SMALL, **{key.replace("__", "."): value for key, value in overrides.items()}}
    return load_config(spec, {"data.path": str(folder / "rows"), **given})


@pytest.fixture(scope="module")
def run(folder):
    """A run of both penalties and replaced words, whole words masked, that nothing interrupted."""
    config = settings(folder, mlm__unit="word", differentiation__token_weight=0.1, differentiation__head_weight=0.1)
    assert pretrain(config, folder / "whole").finished
    return folder / "whole", config


def events(workdir, kind):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [event for event in lines if event["kind"] == kind]


def test_stopped_and_gone_on_with_it_ends_bit_for_bit_the_same(folder, run):
    whole, config = run
    count = itertools.count()
    assert not pretrain(config, folder / "stopped", should_stop=lambda: next(count) >= 13).finished
    assert pretrain(config, folder / "stopped").finished
    jax.tree.map(np.testing.assert_array_equal, read_params(folder / "stopped")[0], read_params(whole)[0])
    last = [{**events(workdir, "validation")[-1], "time": 0} for workdir in (whole, folder / "stopped")]
    assert last[0] == last[1]


def test_all_is_logged_and_the_total_is_that_of_the_terms(run):
    line = events(run[0], "validation")[-1]
    wanted = {"mlm_loss", "rtd_loss", "tcd_loss", "hcd_loss", "generator_accuracy", "sample_accuracy", "replaced",
              "precision", "recall", "auc", "detection_accuracy", "token_cosine_squared", "token_cosine_centred",
              "head_cosine_squared", "head_cosine_centred", "attention_entropy"}  # fmt: skip
    assert wanted <= set(line) and wanted <= set(events(run[0], "train")[-1])
    total = line["mlm_loss"] + 50 * line["rtd_loss"] + 0.1 * (line["tcd_loss"] + line["hcd_loss"])
    np.testing.assert_allclose(line["loss"], total, rtol=1e-6)
    assert events(run[0], "summary")[-1]["validation_loss"] == line["mlm_loss"]


def test_the_report_names_generator_discriminator_and_likeness(run, capsys):
    assert main(["report", str(run[0])]) == 0
    shown = capsys.readouterr().out
    line = events(run[0], "validation")[-1]
    for name in ("auc", "precision", "sample_accuracy", "tcd_loss", "head_cosine_centred", "attention_entropy"):
        assert f"{line[name]:.3f}" in shown, name
    assert "replaced tokens" in shown and "0.1 TCD" in shown and "words whole" in shown


def test_the_discriminator_is_what_fine_tuning_starts_from(run):
    assert load_pretrained(run[0]).model == run[1].model.__class__(
        **{**vars(run[1].model), "vocab_size": load_pretrained(run[0]).tokenizer.vocab_size}
    )


def test_both_networks_go_to_transformers(run, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    for flags, name in (([], "ElectraForPreTraining"), (["--generator"], "ElectraForMaskedLM")):
        out = tmp_path / name
        assert main(["export", "hf", "--workdir", str(run[0]), "--out", str(out), *flags]) == 0
        assert f"for {name} of transformers" in capsys.readouterr().out
        model, report = getattr(transformers, name).from_pretrained(out, output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"]
    words = read_params(run[0])[0]["encoder"]["words"]
    np.testing.assert_array_equal(model.electra.embeddings.word_embeddings.weight.detach().numpy(), words)


def test_a_run_without_a_generator_has_none_to_export(folder, tmp_path, capsys):
    pretrain(settings(folder, rtd__generator="uniform", train__steps=5), folder / "uniform")
    words = ["export", "hf", "--workdir", str(folder / "uniform"), "--out", str(tmp_path / "out"), "--generator"]
    assert main(words) == 1
    assert "trained no generator; leave --generator out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (dict(rtd__generator_size=0.8), "rtd.generator_size=0.8 makes a generator of 2 layers, 13 wide, with 2 heads"),
        (
            dict(rtd__generator="uniform", rtd__share_embeddings=False),
            "rtd.share_embeddings=False would change nothing; only rtd.generator='own' reads it",
        ),
        (dict(objective="mlm"), "rtd.generator_size=0.5 would change nothing; only objective='rtd' reads it"),
        (dict(rtd__generator_scheme="tuppe"), "names 'tuppe'"),
        (dict(mlm__with_replacement=True, mlm__unit="word"), "ELECTRA's drawing"),
        (dict(mlm__span_words=2.0), "mlm.span_words=2.0 would change nothing; only mlm.unit='span'"),
        (dict(differentiation__token_form="squared"), "only differentiation.token_weight above 0 reads it"),
        (dict(model__heads=1, rtd__generator_size=0.5, differentiation__head_weight=1.0), "this model has one"),
        (dict(rtd__discriminator_weight=-1.0), "rtd.discriminator_weight=-1.0 must be at least 0"),
        (dict(objective="rdt"), "objective='rdt' is not one of 'mlm', 'rtd'; did you mean 'rtd'?"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_numbers(folder, overrides, words):
    with pytest.raises(UsageError) as told:
        pretrain(settings(folder, **overrides), folder / "refused")
    assert words in str(told.value)
    assert not (folder / "refused").exists()
