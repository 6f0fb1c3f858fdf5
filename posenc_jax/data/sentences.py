"""Cutting running text into sentences.

A few rules and a list of abbreviations, for English and texts that end sentences as English does. The papers used
spaCy's or NLTK's models; the choice is ours, because it needs no download and a wrong cut costs a pre-training row
little.
"""

import re
from collections.abc import Iterator

_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st sr jr messrs gen col maj capt cpt lt sgt cmdr adm sen rep gov pres rev hon mme mlle fr "
    "vs viz cf al e.g i.e eg ie approx dept est resp incl excl ca".split()
)
_BEFORE_A_NUMBER = frozenset(
    "no nos vol vols p pp fig figs eq eqs sec secs ch chap art ver tab ref refs par "
    "jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_SENTENCE_STARTS = frozenset(
    "The This That These Those There Then They It He She We You In On At For From With But And However When While If "
    "As After Before Although Some Many Most His Her Its Our Their What Who Why How".split()
)

# The end of a sentence: its marks, closing quotes, then white space and what may start the next one.
# A run of marks is tried from its start only: text that is nothing but marks must not take quadratic time. The pattern
# begins with one class of characters, which `re` looks for several times faster than for alternatives.
_CANDIDATE = re.compile(
    r"""[.!?…。！？](?:(?<=[.!?…])(?<![.!?…]{2})[.!?…]*+["'”’»)\]]*+\s++(?=["'“‘«(\[—-]*+[A-Z0-9À-ÖØ-ÞΑ-ΩА-Я])"""
    r"""|(?<=[。！？])[。！？]*+[」』”’]*+)"""
)
_LONGEST_WORD = 24  # characters looked at before a full stop
_WORD_BREAK = re.compile(r"""[\s"'“‘«(\[—]""")
_NEXT_WORD = re.compile(r"\W*(\w+)")
_INITIALS = re.compile(r"(?:[A-ZÀ-ÖØ-Þ]\.)*[A-ZÀ-ÖØ-Þ]")

_ENDED = tuple(".!?…:;\"'”’»)]。！？」』")
_WRAPPED_LINE = 50  # a line this long without an end mark was broken to fit a page; shorter ones are headings


def split_sentences(text: str) -> list[str]:
    """The sentences of a text in order, each on one line, none empty; no character but white space is lost.

    A line break ends a sentence unless the line looks wrapped: no end mark, and long or followed by a small letter.
    """
    return [sentence for line in _unwrapped_lines(text) for sentence in _split_line(line)]


def _unwrapped_lines(text: str) -> Iterator[str]:
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
    open_line: list[str] = []
    for number, line in enumerate(lines):
        open_line.append(line)
        following = lines[number + 1] if number + 1 < len(lines) else ""
        wrapped = not line.endswith(_ENDED) and (following[:1].islower() or len(line) >= _WRAPPED_LINE)
        if not (wrapped and following):
            yield " ".join(open_line)
            open_line = []


def _split_line(line: str) -> Iterator[str]:
    start = 0
    for mark in _CANDIDATE.finditer(line):
        if _ends_sentence(line, start, mark):
            yield line[start : mark.end()].strip()
            start = mark.end()
    if rest := line[start:].strip():
        yield rest


def _ends_sentence(line: str, start: int, mark: re.Match) -> bool:
    at = mark.start()
    if line[at] != "." or line[at + 1] == ".":
        return True
    word = line[max(start, at - _LONGEST_WORD) : at].rpartition(" ")[2]
    if not word.isalnum():  # few are not
        word = _WORD_BREAK.split(word)[-1]
    small = word.lower()
    if not word or small in _ABBREVIATIONS:
        return False
    if small in _BEFORE_A_NUMBER and _follower(line, mark)[:1].isdigit():
        return False
    if word.isdigit() and start + len(word) == at:  # "1. The first of a list"
        return False
    if _INITIALS.fullmatch(word):  # "J. Smith", "the U.S. Army", but "in the U.S. They"
        return _follower(line, mark) in _SENTENCE_STARTS
    return True


def _follower(line: str, mark: re.Match) -> str:
    found = _NEXT_WORD.match(line, mark.end())
    return found[1] if found else ""
