"""Importing: every spelling of a file is read, every mistake in one is told in a sentence, and nothing is half done."""

import json
import os
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from posenc_jax.errors import UsageError, UserError
from posenc_jax.interop import importing
from posenc_jax.interop.importing import import_hf, read_model
from posenc_jax.interop.pretrained import load_pretrained
from posenc_jax.training.workdir import take_lock
from tests.interop.theirs import VOCAB, edit_config, make, torch
from tests.tiny_tokenizers import write_byte_level, write_word_piece

WORDS = "bert.embeddings.word_embeddings.weight"
QUERY = "bert.encoder.layer.1.attention.self.query.weight"


def save(name, class_name, folder):
    make(name, class_name).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A tiny BERT with all its heads, an ELECTRA generator, a ConvBERT and a RoBERTa, as transformers saves them."""
    root = tmp_path_factory.mktemp("originals")
    save("bert_tiny", "BertForPreTraining", root / "bert")
    save("electra_tiny", "ElectraForMaskedLM", root / "electra")
    save("convbert_tiny", "ConvBertModel", root / "convbert")
    save("roberta_tiny", "RobertaModel", root / "roberta")
    return root


@pytest.fixture
def folders(originals, tmp_path):
    return shutil.copytree(originals, tmp_path / "hf")


@pytest.fixture
def bert(folders):
    return folders / "bert"


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return tensors


def assert_equal(ours, theirs):
    for leaf, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(leaf, other)


# ---- spellings ------------------------------------------------------------------------------------------------------


def test_every_spelling_of_the_same_weights_is_the_same_model(bert, tmp_path):
    expected = read_model(bert).params
    tensors = load_file(bert / "model.safetensors")
    assert set(expected) == {"encoder", "head", "pooler", "next_sentence"}

    def spelled(name, write):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(bert / "config.json", folder)
        write(folder)
        assert_equal(read_model(folder).params, expected)

    def renamed(key):
        key = key.removeprefix("bert.")
        return key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    def shards(folder):
        places = {key: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, key in enumerate(tensors)}
        for file in set(places.values()):
            save_file({key: tensors[key] for key in tensors if places[key] == file}, folder / file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    as_torch = {key: torch.from_numpy(array) for key, array in tensors.items()}
    buffers = {"bert.embeddings.position_ids": np.arange(64)[None], "bert.embeddings.token_type_ids": np.zeros((1, 64))}
    decoder = {"cls.predictions.decoder.weight": tensors[WORDS]}
    bias = {"cls.predictions.decoder.bias": tensors["cls.predictions.bias"]}
    moved = {key: array for key, array in tensors.items() if key != "cls.predictions.bias"}
    spelled("old_names", lambda to: save_file({renamed(k): v for k, v in tensors.items()}, to / "model.safetensors"))
    spelled("buffers", lambda to: save_file({**tensors, **buffers}, to / "model.safetensors"))
    spelled("ties", lambda to: save_file({**tensors, **decoder, **bias}, to / "model.safetensors"))
    spelled("bias_by_its_other_name", lambda to: save_file({**moved, **bias}, to / "model.safetensors"))
    spelled("shards", shards)
    spelled("pickle", lambda to: torch.save(as_torch, to / "pytorch_model.bin"))
    old = {"_use_new_zipfile_serialization": False}
    spelled("old_pickle", lambda to: torch.save(as_torch, to / "pytorch_model.bin", **old))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_precisions_become_float32(bert, dtype):
    from safetensors.torch import load_file, save_file

    tensors = {key: array.to(getattr(torch, dtype)) for key, array in load_file(bert / "model.safetensors").items()}
    save_file(tensors, bert / "model.safetensors")
    words = read_model(bert).params["encoder"]["words"]
    assert words.dtype == np.float32
    np.testing.assert_array_equal(words, tensors[WORDS].float().numpy())


def test_both_spellings_of_convberts_name_and_a_missing_name_are_known(folders):
    expected = read_model(folders / "convbert")
    assert expected.model.mixer == "mixed" and not expected.model.convolution.mask
    for name in ("conv_bert", ...):
        edit_config(folders / "convbert", model_type=name)
        assert read_model(folders / "convbert").model == expected.model


def test_the_architecture_is_the_configs(folders):
    model = read_model(folders / "bert").model
    assert (model.layers, model.width, model.heads, model.feed_forward_width) == (2, 24, 4, 40)
    assert (model.vocab_size, model.token_types, model.norm, model.norm_eps) == (VOCAB, 2, "post", 1e-12)
    assert (model.positions.scheme, model.positions.max_length, model.positions.offset) == ("learned", 64, 0)
    model = read_model(folders / "convbert").model
    assert (model.embedding_width, model.feed_forward_groups, model.convolution.width) == (16, 2, 5)


# ---- what cannot be held --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("bert", dict(model_type="gpt2"), "model_type 'gpt2' is none of bert, roberta, electra, convbert, conv_bert"),
        ("bert", dict(hidden_act="gelu_new"), "hidden_act='gelu_new' cannot be held here, only 'gelu' can"),
        ("bert", dict(position_embedding_type="relative_key"), "position_embedding_type='relative_key' cannot be"),
        ("bert", dict(model_type=["bert"]), r"model_type \['bert'\] is none of"),
        ("bert", dict(vocab_size=2**30, hidden_size=2**20), r"has the shape \[97, 24\].* must have \[1073741824, 10"),
        ("bert", dict(vocab_size=2**31), r"model.vocab_size=2147483648 must be below 2\^31"),
        ("bert", dict(tie_word_embeddings=False), r"lacks cls\.predictions\.decoder\.weight, which with tie_word"),
        ("bert", dict(is_decoder=True), "is_decoder=True cannot be held"),
        ("bert", dict(hidden_size=...), "does not say hidden_size"),
        ("bert", dict(num_attention_heads=5), "cannot be meant: model.width=24 is not divisible by model.heads=5"),
        ("bert", dict(hidden_size="wide"), "cannot be meant: model.width='wide' must be a whole number"),
        ("bert", dict(vocab_size=VOCAB + 1), rf"{WORDS[5:]} has the shape \[97, 24\].* must have \[98, 24\]"),
        ("bert", dict(num_hidden_layers=3), r"lacks encoder\.layer\.2\.attention\.self\.query\.weight, "),
        ("bert", dict(num_hidden_layers=1), r"holds encoder\.layer\.1\.attention.*has no place for"),
        ("bert", dict(model_type=..., architectures=7), "model_type None is none of"),
        ("roberta", dict(pad_token_id=None), "pad_token_id=None of 66 positions; whole numbers are needed"),
        ("convbert", dict(head_ratio=4), "head_ratio=4 cannot be held here, only 2 can"),
        ("convbert", dict(num_attention_heads=3), "num_attention_heads=3 cannot be held here with head_ratio=2"),
        ("convbert", dict(num_attention_heads=1), "num_attention_heads=1 cannot be held here"),
        ("convbert", dict(conv_kernel_size=4), "model.convolution.width=4 must be odd"),
        ("electra", dict(model_type="bert"), "embeddings_project.bias, .* BERT with this config.json has no place"),
        ("electra", dict(architectures=["ElectraForPreTraining"]), r"lacks discriminator_predictions\.dense\.weight"),
    ],
)
def test_a_config_that_cannot_be_held_is_told_in_a_sentence(folders, name, changes, sentence):
    edit_config(folders / name, **changes)
    with pytest.raises(UserError, match=sentence) as caught:
        read_model(folders / name)
    assert "\n" not in str(caught.value)


def test_missing_and_left_over_keys_are_listed_together(bert):
    def change(tensors):
        del tensors[QUERY], tensors["cls.predictions.bias"]
        tensors["classifier.weight"] = np.zeros((2, 24), np.float32)

    edit_tensors(bert, change)
    with pytest.raises(UserError) as caught:
        read_model(bert)
    for part in (f"lacks {QUERY[5:]}, cls.predictions.bias", "holds classifier.weight", "save the bare model"):
        assert part in str(caught.value)


def test_keys_of_several_layers_are_listed_as_one(bert):
    edit_tensors(bert, lambda tensors: [tensors.pop(key) for key in list(tensors) if "intermediate" in key])
    with pytest.raises(UserError, match=r"lacks encoder\.layer\.\{0-1\}\.intermediate\.dense\.weight, encoder\.layer"):
        read_model(bert)


def test_an_output_matrix_of_its_own_is_refused(bert):
    edit_tensors(bert, lambda tensors: tensors.update({"cls.predictions.decoder.weight": tensors[WORDS] + 1}))
    with pytest.raises(UserError, match=r"decoder\.weight that differs from embeddings\.word_embeddings\.weight"):
        read_model(bert)


def test_a_tensor_under_two_names_is_refused(bert):
    edit_tensors(bert, lambda tensors: tensors.update({WORDS[5:]: tensors[WORDS] + 1}))
    with pytest.raises(UserError, match=r"holds embeddings\.word_embeddings\.weight twice"):
        read_model(bert)


def test_quantised_weights_are_refused(bert):
    edit_tensors(bert, lambda tensors: tensors.update({QUERY: tensors[QUERY].astype(np.int8)}))
    with pytest.raises(UserError, match=r"query\.weight holds int8, not floating-point"):
        read_model(bert)


@pytest.mark.parametrize("number", [np.nan, 1e300])
def test_numbers_that_are_not_finite_are_refused(bert, number):
    spoilt = lambda tensors: tensors.update({QUERY: np.full((24, 24), number)})  # noqa: E731
    edit_tensors(bert, spoilt)
    with pytest.raises(UserError, match=r"query\.weight holds numbers that are not finite in 32 bits"):
        read_model(bert)


def test_a_vocabulary_with_a_piece_twice_is_refused(complete, tmp_path):
    vocabulary = complete / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text("utf-8") + "[PAD]\n", "utf-8")
    with pytest.raises(UserError, match=r"vocab\.txt holds a piece twice"):
        import_hf(complete, tmp_path / "run")


def test_a_robertas_padding_must_be_its_tokenizers(folders, tmp_path):
    write_byte_level(folders / "roberta")
    make("roberta_tiny", "RobertaModel", vocab_size=400, pad_token_id=3).save_pretrained(folders / "roberta")
    with pytest.raises(UserError, match=r"has id 1 for padding, and config\.json says pad_token_id=3"):
        import_hf(folders / "roberta", tmp_path / "run")


# ---- damage ---------------------------------------------------------------------------------------------------------


def test_missing_files_are_named(bert, tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        read_model(tmp_path / "nowhere")
    (bert / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has no model\.safetensors, no pytorch_model\.bin"):
        read_model(bert)
    (bert / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00001-of-00002.safetensors"}}')
    with pytest.raises(UserError, match=r"names model-00001-of-00002\.safetensors, which is not beside it"):
        read_model(bert)
    (bert / "config.json").unlink()
    with pytest.raises(UserError, match=r"has no config\.json"):
        read_model(bert)


@pytest.mark.parametrize("size", [0, 5, 1000, -7])
def test_a_file_that_is_cut_short_is_told(bert, size):
    path = bert / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match=r"model\.safetensors is damaged or cut short"):
        read_model(bert)
    path.rename(bert / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin is damaged"):
        read_model(bert)


def test_a_pickle_that_would_run_code_is_not_run(bert, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (bert / "model.safetensors").unlink()
    torch.save({"weight": Evil()}, bert / "pytorch_model.bin")
    with pytest.raises(UserError, match="is damaged, or is no file of tensors alone"):
        read_model(bert)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"'])
def test_a_config_that_is_none_is_told(bert, content):
    (bert / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json (cannot be read as JSON|holds no settings)"):
        read_model(bert)


# ---- whole or not at all --------------------------------------------------------------------------------------------


@pytest.fixture
def complete(bert):
    """With a tokenizer, and words enough for it."""
    write_word_piece(bert)
    tokens = len((bert / "vocab.txt").read_text("utf-8").split())
    grown = lambda tensors: tensors.update(  # noqa: E731
        {
            WORDS: np.resize(tensors[WORDS], (tokens, 24)),
            "cls.predictions.bias": np.resize(tensors["cls.predictions.bias"], tokens),
        }
    )
    edit_tensors(bert, grown)
    edit_config(bert, vocab_size=tokens)
    return bert


def test_a_tokenizer_with_more_pieces_than_the_model_has_words_is_refused(bert, tmp_path):
    with pytest.raises(UserError, match=r"has \d+ pieces and the model 97 words"):
        import_hf(write_word_piece(bert), tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf"]


def test_an_interrupted_import_leaves_nothing_and_can_be_repeated(complete, tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(importing, "save_params", interrupted)
        import_hf(complete, tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf"]
    (tmp_path / ".run.part").mkdir()
    (tmp_path / ".run.part" / "left.json").write_text("a user's own")
    with pytest.raises(UsageError, match=r"\.run\.part is in the way"):
        import_hf(complete, tmp_path / "run")
    (tmp_path / ".run.part" / ".lock").write_text("")  # so it is what a process left that was killed
    import_hf(complete, tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "run"]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"config.json", "tokenizer.json", "imported.json", "checkpoints"}


def test_a_workdir_that_is_not_empty_is_refused_and_an_empty_one_taken(complete, tmp_path):
    (tmp_path / "run").mkdir()
    import_hf(complete, tmp_path / "run")
    with pytest.raises(UsageError, match=r"--workdir .*run is not empty"):
        import_hf(complete, tmp_path / "run")
    with pytest.raises(UsageError, match="is a file; name a folder"):
        import_hf(complete, complete / "config.json")


def test_a_tokenizer_from_elsewhere_is_taken(complete, tmp_path):
    elsewhere = tmp_path / "elsewhere.txt"
    (complete / "vocab.txt").rename(elsewhere)
    with pytest.raises(UserError, match="has no tokenizer"):
        import_hf(complete, tmp_path / "run")
    import_hf(complete, tmp_path / "run", elsewhere)
    assert (tmp_path / "run" / "tokenizer.json").is_file()


def test_a_second_import_into_the_same_folder_waits_for_nothing(complete, tmp_path):
    (tmp_path / ".run.part").mkdir()
    with take_lock(tmp_path / ".run.part", ""), pytest.raises(UserError, match="another process is writing"):
        import_hf(complete, tmp_path / "run")
    assert (tmp_path / ".run.part").is_dir()


@pytest.mark.parametrize(
    "content", ["{", "{}", '{"model_type": "x", "source": "", "tokenizer_sha256": "", "length": 1}']
)
def test_a_damaged_note_of_where_it_came_from_is_told(complete, tmp_path, content):
    import_hf(complete, tmp_path / "run")
    (tmp_path / "run" / "imported.json").write_text(content)
    with pytest.raises(UserError, match=r"imported\.json is damaged"):
        load_pretrained(tmp_path / "run")
