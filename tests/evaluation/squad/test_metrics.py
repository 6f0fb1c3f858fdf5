"""EM and F1 as the official scripts count them; the expected values are worked out by hand from their definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc_jax.data.squad import Answer, Question
from posenc_jax.evaluation.squad.metrics import (
    best_threshold,
    exact_match,
    f1,
    golds,
    normalise,
    random_spans,
    score_answers,
    summary,
    with_threshold,
)


def question(number, *texts, context="a context"):
    return Question(number, "?", context, tuple(Answer(text, None) for text in texts), impossible=not texts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat\tsat.", "cat sat"),
        ("a the an", ""),
        ("another theme ant", "another theme ant"),
        ("the-cat", "thecat"),  # punctuation goes before articles, so this "the" is no word of its own
        ("U.S.A.", "usa"),
        ("a.m.", "am"),
        ("1,000 %", "1000"),
        ("“The” Café – naïve", "“ ” café – naïve"),  # other than ASCII punctuation stays, and parts words
        ("A\u00a0the cat", "cat"),
        ("!?,.", ""),
        ("", ""),
    ],
)
def test_normalisation_is_the_official_one(text, expected):
    assert normalise(text) == expected


@given(st.text(max_size=40))
def test_normalisation_settles_and_hides_case_articles_and_punctuation(text):
    once = normalise(text)
    assert not set(once) & set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    assert not {"a", "an", "the"} & set(once.split())
    assert once == " ".join(once.split())
    assert normalise(f"The {text.upper() if text.isascii() else text} !") == once


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "overlap"),
    [
        ("the Denver Broncos", "Denver Broncos", 1.0, 1.0),
        ("Denver Broncos.", "denver broncos", 1.0, 1.0),
        ("Broncos", "Denver Broncos", 0.0, 2 / 3),  # precision 1, recall 1/2
        ("the Denver Broncos of Denver", "Denver Broncos", 0.0, 2 / 3),  # common 2: precision 1/2, recall 1
        ("cat cat cat", "cat cat", 0.0, 4 / 5),  # a bag, not a set: precision 2/3, recall 1
        ("Broncos Denver", "Denver Broncos", 0.0, 1.0),
        ("Panthers", "Denver Broncos", 0.0, 0.0),
        ("", "Denver", 0.0, 0.0),
        ("Denver", "", 0.0, 0.0),
    ],
)
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_pairs_score_as_by_hand(prediction, gold, exact, overlap, version):
    assert exact_match(prediction, gold) == exact
    assert f1(prediction, gold, version) == pytest.approx(overlap)


def test_two_answers_of_nothing_are_alike_in_version_2_and_share_no_word_in_1():
    assert exact_match("the", "!") == 1.0
    assert f1("the", "!", "2.0") == 1.0
    assert f1("the", "!", "1.1") == 0.0


WORDS = st.lists(st.sampled_from(["cat", "the", "dog.", "A", "sat", ""]), max_size=6).map(" ".join)


@given(WORDS, WORDS, st.sampled_from(["1.1", "2.0"]))
def test_f1_is_symmetric_within_0_and_1_and_1_where_the_words_are_the_same(a, b, version):
    assert 0 <= f1(a, b, version) == f1(b, a, version) <= 1
    if exact_match(a, b) and normalise(a):
        assert f1(a, b, version) == 1


def test_the_best_of_several_golds_counts_for_each_score_by_itself():
    asked = [question("q", "Denver Broncos", "the Broncos", "Broncos of Denver")]
    scores = score_answers(asked, {"q": "Denver Broncos team"}, "1.1")
    assert scores.exact["q"] == 0 and scores.f1["q"] == pytest.approx(4 / 5)
    assert score_answers(asked, {"q": "broncos"}, "1.1").exact["q"] == 1


def test_golds_of_nothing_count_in_version_1_and_are_left_out_in_2():
    asked = question("q", "the", "A cat")
    assert golds(asked, "1.1") == ["the", "A cat"]
    assert golds(asked, "2.0") == ["A cat"]
    assert golds(question("q", "the"), "2.0") == [""]
    assert golds(question("q"), "2.0") == [""]


DEV = [question("a", "cat"), question("b", "big dog"), question("c"), question("d")]


def test_summary_means_and_their_halves():
    scores = score_answers(DEV, {"a": "the cat", "b": "dog", "c": "", "d": "bird"}, "2.0")
    assert summary(DEV, scores) == pytest.approx(
        {
            "exact": 50.0,
            "f1": 100 * (1 + 2 / 3 + 1 + 0) / 4,
            "total": 4,
            "HasAns_exact": 50.0,
            "HasAns_f1": 100 * (1 + 2 / 3) / 2,
            "HasAns_total": 2,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
            "NoAns_total": 2,
        }
    )
    assert set(summary(DEV[:2], scores)) == {"exact", "f1", "total"}
    assert "HasAns_exact" not in summary(DEV[2:], scores) and summary(DEV[2:], scores)["NoAns_exact"] == 50


def test_odds_above_the_threshold_mean_no_answer_and_equal_ones_do_not():
    assert with_threshold({"a": "cat", "b": "dog"}, {"a": -2.75, "b": -2.7}, -2.75) == {"a": "cat", "b": ""}


def test_the_best_threshold_of_the_official_search():
    raw = {"a": "cat", "b": "dog", "c": "bird", "d": "fish"}
    odds = {"a": -5.0, "c": -4.0, "b": -3.0, "d": 2.0}
    scores = score_answers(DEV, raw, "2.0")
    assert best_threshold(DEV, raw, scores.exact, odds) == (75.0, -5.0)  # c and d unanswered, a right
    best, threshold = best_threshold(DEV, raw, scores.f1, odds)
    assert (best, threshold) == (75.0, -5.0)  # with b as well: 1 + 2/3 + 1, less
    assert best_threshold(DEV, raw, dict.fromkeys(raw, 0.0), odds) == (50.0, 0.0)


ROWS = st.tuples(st.booleans(), st.booleans(), st.integers(-99, 99))  # has an answer, right, odds


@given(st.lists(ROWS, min_size=1, max_size=8, unique_by=lambda row: row[2]))
def test_no_threshold_is_better_than_the_best_one(rows):
    asked = [question(str(i), *(["cat"] if has else [])) for i, (has, _, _) in enumerate(rows)]
    raw = {str(i): "cat" if right else "dog" for i, (_, right, _) in enumerate(rows)}
    odds = {str(i): float(value) for i, (_, _, value) in enumerate(rows)}
    best, threshold = best_threshold(asked, raw, score_answers(asked, raw, "2.0").exact, odds)

    def at(value):
        return summary(asked, score_answers(asked, with_threshold(raw, odds, value), "2.0"))["exact"]

    assert best == pytest.approx(max(at(value) for value in (*odds.values(), -100.0)))
    assert threshold == 0.0 or at(threshold) == pytest.approx(best)


def test_chance_is_a_run_of_words_of_the_context():
    asked = [question("q", "x", context="one two three four five")]
    found = {random_spans(asked, [2, 9], draw)["q"] for draw in (lambda n: 0, lambda n: n - 1)}
    assert found == {"one two", "one two three four five"}
