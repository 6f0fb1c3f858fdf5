"""From beams to one answer a question, against a search over every span."""

import numpy as np
import pytest

from posenc_jax.data.spans import Passage, Window
from posenc_jax.evaluation.squad.answers import BEST, MAX_ANSWER, choose_answers, nbest
from posenc_jax.model.span_heads import Beams

WORDS = [f"w{number}" for number in range(60)]
TEXT = " ".join(WORDS)
PASSAGE = Passage(TEXT, range(60), [(TEXT.index(word), TEXT.index(word) + len(word)) for word in WORDS])
HEAD = 5
"""Slots before the passage."""


def window(first, tokens, owned=None, question=0):
    owned = np.ones(tokens, bool) if owned is None else owned
    return Window(question, range(HEAD + tokens + 1), HEAD, first, tokens, owned)


def beams(scores, null=0.0):
    """{(start, end): score} in slots -> beams that hold these and, to fill up, what never counts."""
    starts = sorted({start for start, _ in scores})
    kept = max(len(starts), max(sum(start == s for s, _ in scores) for start in starts))
    start_K, end_KxK = np.zeros(kept, int), np.zeros((kept, kept), int)
    end_score_KxK = np.full((kept, kept), 1000.0)
    for k, start in enumerate(starts):
        start_K[k] = start
        for j, (end, value) in enumerate((end, value) for (s, end), value in scores.items() if s == start):
            end_KxK[k, j], end_score_KxK[k, j] = end, value
    return Beams(start_K, np.zeros(kept), end_KxK, end_score_KxK, np.float32(null))


def best(*pairs, head="joint"):
    windows, found = zip(*pairs, strict=True)
    (answer,) = choose_answers(windows, found, [PASSAGE], head)
    return answer


def test_the_best_span_is_cut_out_of_the_text():
    answer = best((window(10, 20), beams({(HEAD + 3, HEAD + 5): -1.0, (HEAD, HEAD): -2.0})))
    assert answer.text == "w13 w14 w15"
    assert [found.text for found in answer.best] == ["w13 w14 w15", "w10"]


@pytest.mark.parametrize(
    "span",
    [
        (0, 0),  # [CLS]
        (0, HEAD + 3),
        (2, HEAD + 3),  # from the question
        (HEAD + 3, HEAD + 20),  # to the [SEP] behind the passage
        (HEAD + 4, HEAD + 3),  # backwards
        (HEAD + 7, HEAD + 8),  # starts where another window has more context
    ],
)
def test_spans_that_do_not_count_are_never_answers(span):
    owned = np.arange(20) != 7
    answer = best((window(0, 20, owned), beams({span: 5.0, (HEAD + 6, HEAD + 7): -9.0})))
    assert [found.text for found in answer.best] == ["w6 w7"]


def test_answers_have_at_most_30_tokens():
    scores = {(HEAD, HEAD + MAX_ANSWER): 5.0, (HEAD, HEAD + MAX_ANSWER - 1): 1.0}
    assert best((window(0, 50), beams(scores))).text == " ".join(WORDS[:30])


def test_the_best_of_all_windows_wins_and_no_text_comes_twice():
    first = window(0, 40), beams({(HEAD + 20, HEAD + 20): -3.0, (HEAD + 1, HEAD + 1): -1.0})
    second = window(20, 40), beams({(HEAD, HEAD): -2.0, (HEAD + 2, HEAD + 2): -0.5})
    answer = best(first, second)
    assert [(found.text, found.score) for found in answer.best] == [("w22", -0.5), ("w1", -1.0), ("w20", -2.0)]


def test_at_most_20_answers_are_kept_best_first(rng):
    values = {(HEAD + a, HEAD + a + b): float(rng.normal()) for a in range(10) for b in range(9)}
    answer = best((window(0, 30), beams(values)))
    assert [found.score for found in answer.best] == sorted(values.values(), reverse=True)[:BEST]


def test_the_null_odds_are_the_least_of_the_windows_and_for_the_plain_head_a_difference():
    pairs = (window(0, 9), beams({(HEAD, HEAD): 1.5}, null=4.0)), (window(5, 9), beams({(HEAD, HEAD): 0.5}, null=3.0))
    assert best(*pairs).null_odds == 3.0
    assert best(*pairs, head="plain").null_odds == 3.0 - 1.5


def test_a_question_without_any_span_has_an_empty_answer():
    answer = best((window(0, 9), beams({(0, 0): 1.0}, null=-1.0)), head="plain")
    assert (answer.text, answer.best, answer.null_odds) == ("", [], -1.0)
    assert nbest(answer)[0]["text"] == ""


def test_a_passage_without_tokens_has_an_empty_answer():
    nothing = Window(0, range(HEAD + 1), HEAD, 0, 0, np.zeros(0, bool))
    (answer,) = choose_answers([nothing], [beams({(HEAD, HEAD): 1.0})], [Passage("\u200b", [], [])], "joint")
    assert answer.text == ""


def test_questions_keep_their_own_windows():
    windows = [window(0, 9), window(3, 9, question=1), window(6, 9)]
    found = [beams({(HEAD, HEAD): score}) for score in (-2.0, 5.0, -1.0)]
    first, second = choose_answers(windows, found, [PASSAGE, PASSAGE], "joint")
    assert (first.text, second.text) == ("w6", "w3")


def test_probabilities_of_the_nbest_list_are_a_softmax():
    answer = best((window(0, 9), beams({(HEAD, HEAD): 0.0, (HEAD, HEAD + 1): np.log(3.0)})))
    listed = nbest(answer)
    assert [(entry["text"], round(entry["probability"], 6)) for entry in listed] == [("w0 w1", 0.75), ("w0", 0.25)]
    assert listed[0]["start_logit"] + listed[0]["end_logit"] == pytest.approx(np.log(3.0))


def test_a_search_over_all_spans_agrees(rng):
    """Windows of many tokens, every span in the beam: the same best answer as trying each."""
    parts = [(0, 12, np.arange(12) < 8), (6, 12, np.arange(12) >= 2)]
    pairs, expected = [], {}
    for first, size, owned in parts:
        size_all = HEAD + size + 1
        score_LxL = rng.normal(size=(size_all, size_all))
        everything = {(s, e): float(score_LxL[s, e]) for s in range(size_all) for e in range(size_all)}
        pairs.append((window(first, size, owned), beams(everything)))
        for (s, e), value in everything.items():
            a, b = s - HEAD, e - HEAD
            if 0 <= a <= b < size and owned[a]:
                text = " ".join(WORDS[first + a : first + b + 1])
                expected[text] = max(value, expected.get(text, -np.inf))
    answer = best(*pairs)
    ranked = sorted(expected, key=expected.get, reverse=True)[:BEST]
    assert [found.text for found in answer.best] == ranked
