"""What each slot of a row is: words are whole, specials and punctuation are marked, nothing is lost in batches."""

import numpy as np
import pytest

from posenc_jax.analysis.texts import batches, mark_texts, sample_texts
from posenc_jax.data.tokenizer import train_tokenizer
from posenc_jax.interop.tokenizer_files import find_tokenizer
from tests.tiny_tokenizers import TEXTS, write_byte_level, write_word_piece

VARIED = [
    *TEXTS,
    'Nobody\'s "quoted" words -- (or: so) it seems...',
    " two   spaces and ½ of 東京!",
    "a_b x2 3.5",
]


@pytest.fixture(scope="module", params=["unigram", "bpe", "WordPiece", "byte-level"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param in ("unigram", "bpe"):
        texts = [*VARIED, "".join(map(chr, range(33, 127)))] * 5
        return train_tokenizer(texts, folder / "tokenizer.model", 130, request.param, lowercase=False)
    return find_tokenizer((write_word_piece if request.param == "WordPiece" else write_byte_level)(folder))


def test_a_subword_stands_with_the_word_of_its_first_character(tokenizer):
    for text, marked in zip(VARIED, mark_texts(tokenizer, VARIED, 200), strict=True):
        ids, offsets = tokenizer.encode_with_offsets(text)
        assert marked.ids_L.tolist() == [tokenizer.cls, *ids, tokenizer.sep]
        assert "".join(marked.words) == "".join(text.split())
        owner = [word for word, spelled in enumerate(marked.words) for _ in spelled]  # of each character but spaces
        for (start, _), word in zip(offsets, marked.word_L[1:-1], strict=True):
            before = len("".join(text[:start].split()))
            assert word == owner[before], (text, start)
        assert (np.diff(marked.word_L[1:-1]) >= 0).all()


def test_marks_name_specials_words_and_punctuation(tokenizer):
    (marked,) = mark_texts(tokenizer, ["Nobody's good: the fox, over_it (x2)!"], 100)
    assert marked.words == ("Nobody's", "good", ":", "the", "fox", ",", "over_it", "(", "x2", ")", "!")
    assert marked.special_L.tolist() == [True, *[False] * (len(marked.ids_L) - 2), True]
    assert marked.word_L[0] == marked.word_L[-1] == -1
    is_mark = {marked.words[word] for word in marked.word_L[marked.punctuation_L]}
    assert is_mark == {":", ",", "(", ")", "!"} and not marked.punctuation_L[[0, -1]].any()


def test_accents_and_vowel_signs_of_their_own_part_no_word(tokenizer):
    for text in ("e\u0301te\u0301 naïve", "हिन्दी भाषा", "n̈'a\u0300b x"):
        (marked,) = mark_texts(tokenizer, [text], 100)
        assert marked.words == tuple(text.split())


@pytest.mark.parametrize("texts, said", [("one text", "'one text' is one text"), (["a", None], "text 1 is None")])
def test_what_is_no_list_of_texts_is_refused(tokenizer, texts, said):
    with pytest.raises(ValueError, match=said):
        list(mark_texts(tokenizer, texts, 100))


def test_long_texts_are_cut_and_texts_without_a_word_are_passed_over_but_counted(tokenizer):
    marked = list(mark_texts(tokenizer, ["", "the quick brown fox " * 20, "  \n", "cat"], 12))
    assert [one.sentence for one in marked] == [1, 3]
    assert len(marked[0].ids_L) == 12 and marked[0].ids_L[-1] == tokenizer.sep
    assert len(marked[0].words) == 80


def test_batches_hold_every_text_once_in_few_shapes(tokenizer):
    texts = list(mark_texts(tokenizer, [" ".join(["fox"] * n) for n in range(1, 40)] * 3, 50))
    seen, shapes = [], set()
    for batch in batches(texts, 50, batch_tokens=128):
        shapes.add(batch.tokens_BxL.shape)
        assert len(batch.texts) <= len(batch.tokens_BxL)
        for row, text in enumerate(batch.texts):
            slots = len(text.ids_L)
            np.testing.assert_array_equal(batch.tokens_BxL[row, :slots], text.ids_L)
            np.testing.assert_array_equal(batch.segments_BxL[row], np.arange(batch.tokens_BxL.shape[1]) < slots)
        assert batch.segments_BxL.any(1).all()
        seen += [text.sentence for text in batch.texts]
    assert sorted(seen) == [text.sentence for text in texts]
    assert {(8, 16), (4, 32)} < shapes <= {(8, 16), (4, 32), (2, 50), (1, 16), (1, 32), (1, 50)}
    with pytest.raises(ValueError, match="more than 5"):
        list(batches(texts, 5))


def test_a_sample_is_a_function_of_the_seed_and_every_text_is_as_likely():
    texts = [f"text {number}" for number in range(30)]
    chosen, index = sample_texts(iter(texts), 10, 3)
    assert chosen == [texts[number] for number in index] and sorted(set(index)) == list(index) and len(index) == 10
    assert sample_texts(texts, 10, 3)[0] == chosen != sample_texts(texts, 10, 4)[0]
    assert sample_texts(texts, 50, 0)[0] == texts
    often = np.bincount(np.concatenate([sample_texts(texts, 10, seed)[1] for seed in range(600)]), minlength=30)
    assert abs(often - 200).max() < 5 * np.sqrt(600 * (1 / 3) * (2 / 3))
