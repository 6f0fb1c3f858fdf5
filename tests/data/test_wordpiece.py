"""A tokenizer.json behind our own tokenizer's calls: ids that are the file's, literal specials that stay text."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc_jax.data.tokenizer import Tokenizer, train_tokenizer
from posenc_jax.data.wordpiece import NAMES, JsonTokenizer, load_tokenizer
from posenc_jax.errors import UserError
from tests.tiny_tokenizers import PIECES, TEXTS, write_byte_level, write_word_piece

from posenc_jax.interop.tokenizer_files import find_tokenizer  # isort: skip


@pytest.fixture(scope="module", params=[write_word_piece, write_byte_level])
def tokenizer(request, tmp_path_factory):
    return find_tokenizer(request.param(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def word_piece(tmp_path_factory):
    return find_tokenizer(write_word_piece(tmp_path_factory.mktemp("tokenizer")))


def test_special_ids_are_those_of_the_file(tokenizer):
    names = NAMES[0] if tokenizer.id_to_piece(0) == "[PAD]" else NAMES[1]
    ids = (tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask)
    assert ids == tokenizer.specials and len(set(ids)) == 5
    assert tuple(map(tokenizer.id_to_piece, ids)) == names


def test_words_become_their_longest_pieces_and_come_back(word_piece):
    ids = word_piece.encode("The films, badly")
    pieces = ["the", "film", "##s", ",", "bad", "##l", "##y"]
    assert [word_piece.id_to_piece(number) for number in ids] == pieces
    assert ids == [PIECES.index(piece) for piece in pieces]
    assert word_piece.decode([word_piece.cls, *ids, word_piece.sep, word_piece.pad]) == "the films, badly"
    assert word_piece.vocab_size == len(PIECES)


def test_bytes_hold_any_text(tmp_path):
    tokenizer = find_tokenizer(write_byte_level(tmp_path))
    for text in (*TEXTS, "😀 ☃\n\t x"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("special", [*NAMES[0], *NAMES[1]])
def test_literal_specials_stay_text(tokenizer, special):
    ids = tokenizer.encode(f"good {special} film")
    assert not {*ids} & {*tokenizer.specials}
    assert special.lower() in tokenizer.decode(ids).lower().replace(" ", "")


@given(st.text())
def test_no_text_makes_a_special_id_but_unknown(tokenizer, text):
    assert not {*tokenizer.encode(text)} & ({*tokenizer.specials} - {tokenizer.unk})


def test_a_batch_is_encoded_as_its_texts_are(tokenizer):
    assert tokenizer.encode_batch(TEXTS) == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.encode_batch([]) == []


def test_it_survives_pickling_and_loading(tokenizer, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(tokenizer.content)
    for copy in (pickle.loads(pickle.dumps(tokenizer)), load_tokenizer(tmp_path)):
        assert copy.sha256 == tokenizer.sha256 and copy.specials == tokenizer.specials
        assert copy.encode("good [MASK] <mask> film") == tokenizer.encode("good [MASK] <mask> film")


def test_a_workdir_with_a_sentencepiece_model_gives_that(tmp_path):
    train_tokenizer(TEXTS * 20, tmp_path / "tokenizer.model", 55)
    assert isinstance(load_tokenizer(tmp_path), Tokenizer)
    with pytest.raises(UserError, match=r"there is no tokenizer .*tokenizer\.model"):
        load_tokenizer(tmp_path / "elsewhere")


def test_texts_are_neither_cut_nor_filled_up(word_piece):
    """Whatever the file asks for: rows are made by whoever calls."""
    content = json.loads(word_piece.content)
    content["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    padding = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
    content["padding"] = {**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    assert JsonTokenizer(json.dumps(content).encode()).encode(TEXTS[0]) == word_piece.encode(TEXTS[0])


def test_what_is_no_tokenizer_is_refused(word_piece, tmp_path):
    with pytest.raises(UserError, match=r"tokenizer\.json is not a tokenizer\.json, or it is damaged"):
        JsonTokenizer(word_piece.content[:200], "tokenizer.json")
    content = json.loads(word_piece.content)
    content["added_tokens"] = []
    del content["model"]["vocab"]["[MASK]"]
    with pytest.raises(UserError, match=r"it has no token \[MASK\]"):
        JsonTokenizer(json.dumps(content).encode(), "it")
