"""Tokenizers of Hugging Face folders give transformers' ids; ours give the same ids in transformers."""

import json
import random

import pytest

from posenc_jax.data.tokenizer import train_tokenizer
from posenc_jax.errors import UserError
from posenc_jax.interop.tokenizer_files import find_tokenizer, tokenizer_files
from tests.interop.theirs import transformers
from tests.tiny_tokenizers import PIECES, TEXTS, write_byte_level, write_word_piece

VARIED = [
    *TEXTS,
    *("", "   ", "  two  spaces \t and\r\nlines ", "!!!???... ''``", "a" * 300, "12,345.67 3rd"),
    *("Ｈｅｌｌｏ ①②③ ﬁne Straße İstanbul ΑΣ", "日本語のテキスト 中文 한국어", "½ ² x₂ ℃ ™ …", "don't WON'T can´t"),
    *("emoji 😀👩\u200d👩\u200d👧 flag 🇩🇪", "zero\u200bwidth\u00a0nbsp\u3000ideographic", "▁under ▁ x▁y"),
    *("a\u0301e\u0301 n\u0303 é ö", "ሰላም कखग ไทย عَرَبِيّ", "\u0000x\u0007y \ufeffmark"),
]


def words(count: int) -> list[str]:
    """Lines of made-up words, some of them often."""
    rng = random.Random(0)
    known = [
        "".join(rng.choice(["Ba", "be", "lin", "gro", "st", "é", "ein", "x"]) for _ in range(3)) for _ in range(90)
    ]
    return [" ".join(known[min(rng.randrange(90), rng.randrange(90))] for _ in range(9)) for _ in range(count)]


def mixtures(count: int) -> list[str]:
    """Characters of the above in any order."""
    rng, characters = random.Random(0), "".join(VARIED + words(20))
    return ["".join(rng.choice(characters) for _ in range(40)) for _ in range(count)]


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}, {"strip_accents": False}])
@pytest.mark.parametrize("saved", [False, True], ids=["vocab.txt", "tokenizer.json"])
def test_word_pieces_are_those_of_transformers(settings, saved, tmp_path):
    folder = write_word_piece(tmp_path / "one", **settings)
    theirs = transformers.BertTokenizerFast.from_pretrained(folder)
    if saved:
        theirs.save_pretrained(folder)
        (folder / "vocab.txt").unlink(missing_ok=True)
    ours = find_tokenizer(folder)
    for text in VARIED + mixtures(100):
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.specials == tuple(map(PIECES.index, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")))


def test_the_settings_beside_a_tokenizer_json_overrule_its_lower_casing(tmp_path):
    transformers.BertTokenizerFast.from_pretrained(write_word_piece(tmp_path)).save_pretrained(tmp_path)
    assert find_tokenizer(tmp_path).encode("The") == [PIECES.index("the")]
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "do_lower_case": False}))
    assert find_tokenizer(tmp_path).encode("The") == [PIECES.index("The")]


@pytest.mark.parametrize("saved", [False, True], ids=["merges.txt", "tokenizer.json"])
def test_byte_pairs_are_those_of_transformers(saved, tmp_path):
    folder = write_byte_level(tmp_path)
    theirs = transformers.RobertaTokenizerFast.from_pretrained(folder)
    if saved:
        theirs.save_pretrained(folder)
    ours = find_tokenizer(folder)
    for text in VARIED + mixtures(100):
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.specials == (
        theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id
    )  # fmt: skip


def load_exported(folder, tokenizer, types):
    folder.mkdir()
    for name, content in tokenizer_files(tokenizer, 64, types).items():
        (folder / name).write_text(content, "utf-8")
    config = {"model_type": "bert", "vocab_size": tokenizer.vocab_size}
    (folder / "config.json").write_text(json.dumps(config))
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_sentencepiece_model_of_ours_gives_its_ids_in_transformers(kind, lowercase, tmp_path):
    ours = train_tokenizer(words(300) + TEXTS * 9, tmp_path / "model", 130, kind, lowercase)
    theirs = load_exported(tmp_path / "out", ours, types=False)
    for text in VARIED + words(50) + mixtures(200):
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text), text
    assert theirs.mask_token_id == ours.mask and theirs("[MASK]", add_special_tokens=False)["input_ids"] == [ours.mask]
    assert theirs.model_max_length == 64 and len(theirs) == ours.vocab_size


def test_a_pair_has_the_form_that_fine_tuning_gives_it(tmp_path):
    ours = train_tokenizer(TEXTS * 20, tmp_path / "model", 55)
    (a, b), cls, sep = ours.encode_batch(["the fox", "a dog"]), ours.cls, ours.sep
    theirs = load_exported(tmp_path / "plain", ours, types=False)("the fox", "a dog")
    assert theirs["input_ids"] == [cls, *a, sep, sep, *b, sep] and "token_type_ids" not in theirs
    theirs = load_exported(tmp_path / "types", ours, types=True)("the fox", "a dog")
    assert theirs["input_ids"] == [cls, *a, sep, *b, sep]
    assert theirs["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)


@pytest.mark.parametrize("write", [write_word_piece, write_byte_level])
def test_an_imported_tokenizer_goes_back_as_it_came(write, tmp_path):
    ours = find_tokenizer(write(tmp_path / "in"))
    theirs = load_exported(tmp_path / "out", ours, types=True)
    for text in VARIED:
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text)
    assert find_tokenizer(tmp_path / "out").encode(TEXTS[0]) == ours.encode(TEXTS[0])


def test_a_folder_without_a_whole_tokenizer_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no tokenizer: .*--tokenizer"):
        find_tokenizer(tmp_path)
    (write_byte_level(tmp_path / "bytes") / "merges.txt").unlink()
    with pytest.raises(UserError, match=r"has a vocab\.json, but no merges\.txt"):
        find_tokenizer(tmp_path / "bytes")
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(UserError, match=r"tokenizer\.json is damaged or no tokenizer"):
        find_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"vocab\.txt has no token \[PAD\]"):
        find_tokenizer(tmp_path)
