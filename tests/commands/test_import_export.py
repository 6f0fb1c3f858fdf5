"""`import` and `export` at the front door: a model comes in, is fine-tuned, goes out, and is what it was."""

import json

import jax
import numpy as np
import optax
import pytest

from posenc_jax.__main__ import main
from posenc_jax.config import CompatibilityConfig, Config, MeshConfig, ModelConfig, PositionConfig, config_to_dict
from posenc_jax.data.tokenizer import train_tokenizer
from posenc_jax.evaluation.glue.grid import run_glue
from posenc_jax.interop.pretrained import load_pretrained
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.checkpoint import Checkpoints
from posenc_jax.training.state import create_state
from tests.interop.theirs import assert_same, make, our_answers, their_answers, transformers
from tests.tiny_tokenizers import PIECES, TEXTS, write_byte_level, write_word_piece


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder of a tiny BERT, as one downloads it."""
    folder = write_word_piece(tmp_path_factory.mktemp("bert"))
    make("bert_tiny", "BertForPreTraining", vocab_size=len(PIECES)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def workdir(bert, tmp_path_factory):
    run = tmp_path_factory.mktemp("run") / "run"
    assert main(["import", "hf", str(bert), "--workdir", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    rows = {
        "SST-2": ("sentence\tlabel", "the good film\t{}"),
        "STS-B": ("sentence1\tsentence2\tscore", "the good film\ta bad fox jumps\t{}"),
    }
    for task, (header, row) in rows.items():
        (root / task).mkdir()
        for split in ("train", "dev"):
            lines = [header, *(row.format(number % 2) for number in range(8))]
            (root / task / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return root


def test_an_imported_model_is_told_and_kept_whole(bert, tmp_path, capsys):
    assert main(["import", "hf", str(bert), "--workdir", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert f"BERT: 2 layers x 24, {len(PIECES)} words, " in printed and "head, next_sentence, pooler" in printed
    origin = json.loads((tmp_path / "run" / "imported.json").read_text())
    assert origin["model_type"] == "bert" and origin["length"] == 64


def test_an_imported_model_is_fine_tuned_on_pairs_as_it_was_trained(workdir, data):
    pretrained = load_pretrained(workdir)
    assert pretrained.tokenizer.cls == PIECES.index("[CLS]") and pretrained.length == 64
    records = run_glue(workdir, data, ["SST-2", "STS-B"], epochs=1, batch_size=8)
    assert [record["task"] for record in records] == ["SST-2", "STS-B"]
    assert all(record["start"].startswith("step 0 (") for record in records)
    assert "| STS-B | pearson |" in (workdir / "report.md").read_text()


def test_an_imported_roberta_is_fine_tuned_with_its_own_special_ids(data, tmp_path):
    write_byte_level(tmp_path / "hf")
    words = len(json.loads((tmp_path / "hf" / "vocab.json").read_text()))
    make("roberta_tiny", "RobertaForMaskedLM", vocab_size=words).save_pretrained(tmp_path / "hf")
    assert main(["import", "hf", str(tmp_path / "hf"), "--workdir", str(tmp_path / "run")]) == 0
    assert run_glue(tmp_path / "run", data, ["STS-B"], epochs=1, batch_size=8)[0]["columns"]["STS-B"]["rows"] == 8
    assert main(["export", "hf", "--workdir", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    assert type(transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out")).__name__ == "RobertaForMaskedLM"


def test_an_exported_model_loads_by_its_folder_alone(bert, workdir, tmp_path, capsys):
    assert main(["export", "hf", "--workdir", str(workdir), "--out", str(tmp_path / "out")]) == 0
    assert "step 0 is in" in capsys.readouterr().out
    before, after = (transformers.AutoModelForMaskedLM.from_pretrained(place) for place in (bert, tmp_path / "out"))
    known, tokenizer = (transformers.AutoTokenizer.from_pretrained(place) for place in (bert, tmp_path / "out"))
    batches = [one(TEXTS, padding=True, return_tensors="np") for one in (known, tokenizer)]
    for name in ("input_ids", "token_type_ids", "attention_mask"):
        np.testing.assert_array_equal(batches[0][name], batches[1][name])
    for name, value in their_answers(before.eval(), batches[0]).items():
        np.testing.assert_allclose(their_answers(after.eval(), batches[1])[name], value, rtol=0, atol=1e-6)


@pytest.fixture
def pretrained(tmp_path):
    """Writes a workdir as `pretrain` leaves it; returns it and the parameters."""

    def write(**changes):
        run = tmp_path / "run"
        run.mkdir()
        tokenizer = train_tokenizer(TEXTS * 20, run / "tokenizer.model", 55)
        positions = PositionConfig(max_length=100)
        sizes = dict(layers=2, width=24, heads=4, feed_forward_width=40, vocab_size=tokenizer.vocab_size, init_std=0.3)
        model = ModelConfig(**{**sizes, "positions": positions, **changes})
        (run / "config.json").write_text(json.dumps(config_to_dict(Config(model=model))))
        (run / "rows.json").write_text(json.dumps({"length": 16, "tokenizer_sha256": tokenizer.sha256}))
        state = create_state(Mlm(model), optax.adam(1e-3), make_mesh(MeshConfig()), seed=7)
        checkpoints = Checkpoints(run)
        checkpoints.save(state.replace(step=state.step + 3), {"step": 3, "seconds": 0.0})
        checkpoints.wait()
        checkpoints.close()
        return run, model, jax.device_get(state.params)

    return write


def test_a_pairwise_model_of_ours_is_a_plain_bert_elsewhere(pretrained, tmp_path, capsys):
    run, model, params = pretrained(compatibility=CompatibilityConfig("pairwise"))
    assert main(["export", "hf", "--workdir", str(run), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"step 3 is in {tmp_path}/out, for BertForMaskedLM of transformers\n"
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = dict(tokenizer([*TEXTS, "words"], padding=True, return_tensors="np"))
    assert (batch["attention_mask"] == 0).any()
    assert_same(our_answers(model, params, batch), their_answers(theirs, batch), batch)
    # and the way back in, with the folded keys
    assert main(["import", "hf", str(tmp_path / "out"), "--workdir", str(tmp_path / "again")]) == 0
    assert load_pretrained(tmp_path / "again").model.compatibility == CompatibilityConfig()


def test_what_cannot_go_out_is_one_sentence_and_no_folder(pretrained, tmp_path, capsys):
    run, _, _ = pretrained(positions=PositionConfig("tupe", max_length=32))
    assert main(["export", "hf", "--workdir", str(run), "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: model.positions.scheme='tupe' has no counterpart") and told.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_exact_padding_of_a_mixed_model_is_told_to_be_lost(pretrained, tmp_path, capsys):
    run, _, _ = pretrained(mixer="mixed")
    assert main(["export", "hf", "--workdir", str(run), "--out", str(tmp_path / "out")]) == 0
    assert "note: model.convolution.mask=True: Hugging Face lets padding leak" in capsys.readouterr().out


def test_checkpoints_of_another_model_are_refused(pretrained, tmp_path, capsys):
    run, _, _ = pretrained()
    settings = json.loads((run / "config.json").read_text())
    settings["model"]["feed_forward_width"] = 48
    (run / "config.json").write_text(json.dumps(settings))
    assert main(["export", "hf", "--workdir", str(run), "--out", str(tmp_path / "out")]) == 1
    assert "feed_forward/inner/bias is (2, 40) and should be (2, 48)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["import", "hf", "nowhere", "--workdir", "{}/new"], 1),
        (["export", "hf", "--workdir", "nowhere", "--out", "{}/new"], 1),
        (["import", "hf", "{bert}", "--workdir", "{bert}"], 2),
        (["export", "hf", "--workdir", "{run}", "--out", "{bert}"], 2),
        (["export", "hf", "--workdir", "{bert}", "--out", "{}/new"], 1),
    ],
)
def test_mistakes_end_with_their_code_and_write_nothing(words, code, bert, workdir, tmp_path, capsys):
    assert main([word.format(tmp_path, bert=bert, run=workdir) for word in words]) == code
    assert capsys.readouterr().err.startswith("error: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["import"], ["import", "hf", "x"], ["export", "tf", "--workdir", "a", "--out", "b"]])
def test_wrong_use_is_told_before_any_work(words):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
