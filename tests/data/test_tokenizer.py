"""Fixed special ids, literal specials, vocabulary limits."""

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc_jax.data.tokenizer import CLS, MASK, PAD, SEP, SPECIALS, UNK, Tokenizer, train_tokenizer
from posenc_jax.errors import UsageError, UserError

TEXTS = [
    "The quick brown fox [jumps] over the lazy dog, and over the lazy cat; again.",
    "A tokenizer needs some words: words of one kind and words of another kind.",
    "Who reads [MASK] or [CLS] in a text reads nothing but brackets and letters.",
] * 20


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def model(request, tmp_path_factory):
    return train_tokenizer(TEXTS, tmp_path_factory.mktemp("model") / "tokenizer.model", 55, request.param)


def test_special_ids_are_fixed(model):
    assert (PAD, UNK, CLS, SEP, MASK) == (0, 1, 2, 3, 4)
    assert [model.id_to_piece(number) for number in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert model.vocab_size == 55


@pytest.mark.parametrize("special", SPECIALS)
@pytest.mark.parametrize("lowercase", [True, False])
def test_literal_specials_stay_text(special, lowercase, tmp_path):
    texts = [*TEXTS, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    model = train_tokenizer(texts, tmp_path / "model", 55 if lowercase else 75, lowercase=lowercase)
    ids = model.encode(f"fox {special} dog")
    assert min(ids) > MASK
    assert model.decode(ids) == (f"fox {special} dog".lower() if lowercase else f"fox {special} dog")


@given(st.text())
def test_no_text_makes_a_special_id_but_unknown(model, text):
    assert not set(model.encode(text)) & {PAD, CLS, SEP, MASK}


def test_text_is_folded_to_small_letters(model):
    assert model.encode("The Quick FOX") == model.encode("the quick fox")


def test_a_batch_is_encoded_as_its_texts_are(model):
    assert model.encode_batch(TEXTS[:3]) == [model.encode(text) for text in TEXTS[:3]]
    assert model.encode_batch([]) == []


def test_a_tokenizer_survives_pickling_and_loading(model, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(model.proto)
    for copy in (pickle.loads(pickle.dumps(model)), Tokenizer.load(tmp_path / "tokenizer.model")):
        assert copy.sha256 == model.sha256 and copy.encode(TEXTS[0]) == model.encode(TEXTS[0])


def test_training_twice_gives_the_same_bytes(tmp_path):
    first, second = (train_tokenizer(TEXTS, tmp_path / "model", 55) for _ in range(2))
    assert first.proto == second.proto


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_larger_than_the_text_allows_names_the_largest(kind, tmp_path):
    with pytest.raises(UsageError, match=r"8000 is larger than the text allows; \d+ is the largest") as caught:
        train_tokenizer(TEXTS, tmp_path / "model", 8000, kind)
    largest = int(str(caught.value).split(";")[1].split()[0])
    assert train_tokenizer(TEXTS, tmp_path / "model", largest, kind).vocab_size == largest
    with pytest.raises(UsageError):
        train_tokenizer(TEXTS, tmp_path / "model", largest + 1, kind)


@pytest.mark.parametrize("size", [1, 5, 20])
def test_a_vocabulary_too_small_is_refused(size, tmp_path):
    with pytest.raises(UsageError, match=f"a vocabulary of {size} "):
        train_tokenizer(TEXTS, tmp_path / "model", size)
    assert not list(tmp_path.iterdir())


def test_no_sentence_is_refused(tmp_path):
    with pytest.raises(UserError, match="no sentence"):
        train_tokenizer(["", " \n "], tmp_path / "model", 55)


def test_a_line_longer_than_sentencepiece_takes_is_not_lost(tmp_path):
    """Its words are seen only if it is cut: sentencepiece drops long sentences."""
    model = train_tokenizer([*TEXTS, "zyxo " * 2000], tmp_path / "model", 58)
    assert UNK not in model.encode("zyxo")


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no tokenizer"):
        Tokenizer.load(tmp_path / "none.model")
    (tmp_path / "bad.model").write_bytes(b"not a model")
    with pytest.raises(UserError, match=r"bad\.model is not a sentencepiece model"):
        Tokenizer.load(tmp_path / "bad.model")


def test_a_model_with_other_special_ids_is_refused():
    import io

    import sentencepiece

    other = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=other, vocab_size=45, minloglevel=2
    )
    with pytest.raises(UserError, match=r"does not have \[PAD\] at id 0"):
        Tokenizer(other.getvalue())


def test_tokenizing_imports_neither_tensorflow_nor_jax():
    """sentencepiece and TensorFlow in one process have crashed, depending on which came first."""
    code = (
        "import sys; from posenc_jax.data import prepare, tokenizer, sources, shards; "
        "assert 'sentencepiece' not in sys.modules; import sentencepiece, array_record.python.array_record_module; "
        "print([name for name in ('tensorflow', 'jax', 'tensorflow_datasets') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
