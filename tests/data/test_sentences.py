"""Cutting text into sentences."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc_jax.data.sentences import _CANDIDATE, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith paid $3.50 to J. K. Rowling.", 'She said "No!" and left.', "It was late."],
        ["See Fig. 3, No. 5 and pp. 7 f. of the book.", "It cost 2.50 e.g. in the U.S. Army."],
        ["They live in the U.S.", "They left at 5 p.m.", "Nobody knew!"],
        ['"Why?" he asked.', '"Because," she said.', "(It was so.)", "Was it?"],
        ["1. The first of a list.", "2. The second of it."],
        ["What?!", "Yes... and no.", "Well…", "Then he went."],
        ["这是一句话。", "这是另一句话！"],
    ],
)
def test_sentences_are_found_again_after_joining(sentences):
    joint = "" if sentences[0].startswith("这") else " "
    assert split_sentences(joint.join(sentences)) == sentences


def test_a_wrapped_line_goes_on_and_a_heading_does_not():
    text = "Chapter One\nIt was a dark and stormy night when the old captain of\nEngland came\nhome. He slept.\nThe end"
    assert split_sentences(text) == [
        "Chapter One",
        "It was a dark and stormy night when the old captain of England came home.",
        "He slept.",
        "The end",
    ]


@given(st.text(alphabet=st.sampled_from(list('aB. !?"\n\t(1)é。…')), max_size=200) | st.text(max_size=200))
def test_nothing_but_white_space_is_lost(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() and sentence and "\n" not in sentence for sentence in sentences)


PLAIN = re.compile(  # a run of marks from its start, closing quotes, white space, a start; or East Asian marks
    r"""(?<![.!?…])[.!?…]+["'”’»)\]]*\s+(?=["'“‘«(\[—-]*[A-Z0-9À-ÖØ-ÞΑ-ΩА-Я])|[。！？]+[」』”’]*"""
)


@given(st.text(alphabet=st.sampled_from(list("aAÄЯ1 \t.!?…。！\"”’»)('—-")), max_size=60))
def test_the_pattern_that_is_looked_for_fast_finds_what_the_plain_one_finds(line):
    assert [m.span() for m in _CANDIDATE.finditer(line)] == [m.span() for m in PLAIN.finditer(line)]


@pytest.mark.parametrize("unit", [".", " ", ". ", '"', '. "', "A. ", "a", "a.\n", "(", "。"])
def test_time_is_linear_even_for_nonsense(unit):
    started = time.perf_counter()
    split_sentences(unit * (200_000 // len(unit)))
    assert time.perf_counter() - started < 5  # quadratic time would be minutes
