"""SQuAD files, versions 1.1 and 2.0, read strictly: whatever is wrong is told by file and question."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from posenc_jax.errors import UserError

Version = Literal["1.1", "2.0"]


@dataclasses.dataclass(frozen=True)
class Answer:
    text: str
    start: int | None
    """First character in the context; None where the context does not say `text` there."""


@dataclasses.dataclass(frozen=True)
class Question:
    id: str
    text: str
    context: str
    answers: tuple[Answer, ...]
    """Those people gave, in file order; none of an impossible question."""
    impossible: bool = False
    """The context holds no answer (2.0)."""


@dataclasses.dataclass(frozen=True)
class Squad:
    """One file."""

    path: Path
    questions: tuple[Question, ...]
    version: Version
    """2.0 where any question says whether it is impossible, whatever the file calls itself."""
    misplaced: tuple[str, ...]
    """Ids of the questions that have an answer whose text is not at its place in the context."""
    sha256: str


def read_squad(path: str | Path) -> Squad:
    """Reads a SQuAD JSON file whole. An answer that is not at its place stays a gold text, but has no place.

    Raises `UserError` with the file and the question for anything else that is not as it must be.
    """
    path = Path(path)
    raw = _read(path)
    try:
        articles = _get(json.loads(raw.decode("utf-8-sig")), "data", list, "the file")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}); save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON, or it is cut short ({error}); copy it again") from None
    except _Odd as odd:
        raise UserError(f"{path}: {odd}; this is no SQuAD file") from None
    try:
        read = list(_questions(articles))
    except _Odd as odd:
        raise UserError(f"{path}: {odd}; mend the file or take that question out") from None
    if not read:
        raise UserError(f"{path} holds no question")
    questions = tuple(question for question, _ in read)
    return Squad(
        path=path,
        questions=questions,
        version="2.0" if any(flagged for _, flagged in read) else "1.1",
        misplaced=tuple(q.id for q in questions if any(answer.start is None for answer in q.answers)),
        sha256=hashlib.sha256(raw).hexdigest(),
    )


class _Odd(Exception):
    """What is odd about a file, as a part of a sentence."""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; give a SQuAD JSON file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give a SQuAD JSON file") from None


def _questions(articles: list[Any]) -> Iterator[tuple[Question, bool]]:
    """Each question, and whether it says if it is impossible."""
    seen: set[str] = set()
    for a, article in enumerate(articles, 1):
        for p, paragraph in enumerate(_get(article, "paragraphs", list, f"article {a}"), 1):
            place = f"article {a}, paragraph {p}"
            context = _get(paragraph, "context", str, place)
            if not context.strip():
                raise _Odd(f"{place} has an empty 'context'")
            for q, entry in enumerate(_get(paragraph, "qas", list, place), 1):
                number = _get(entry, "id", str, f"{place}, question {q}")
                if number in seen:
                    raise _Odd(f"two questions have the id {number!r}")
                seen.add(number)
                yield _question(entry, number, context), "is_impossible" in entry


def _question(entry: dict[str, Any], number: str, context: str) -> Question:
    place = f"question {number!r}"
    impossible = _get(entry, "is_impossible", bool, place) if "is_impossible" in entry else False
    answers = _get(entry, "answers", list, place)
    if impossible and answers:
        raise _Odd(f"{place} is impossible and has answers")
    if not impossible and not answers:
        raise _Odd(f"{place} has no answers")
    return Question(
        id=number,
        text=_get(entry, "question", str, place),
        context=context,
        answers=tuple(_answer(answer, place, context) for answer in answers),
        impossible=impossible,
    )


def _answer(entry: Any, place: str, context: str) -> Answer:
    text = _get(entry, "text", str, f"an answer of {place}")
    start = _get(entry, "answer_start", int, f"an answer of {place}")
    if not text.strip():
        raise _Odd(f"an answer of {place} has an empty 'text'")
    aligned = start >= 0 and context.startswith(text, start)
    return Answer(text, start if aligned else None)


def _get(entry: Any, key: str, kind: type, place: str) -> Any:
    if not isinstance(entry, dict):
        raise _Odd(f"{place} is not an object")
    if key not in entry:
        raise _Odd(f"{place} has no {key!r}")
    value = entry[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _Odd(f"{key!r} of {place} is not {'an' if kind is int else 'a'} {kind.__name__}")
    if kind is str and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _Odd(f"{key!r} of {place} holds half a character (a lone surrogate)")
    return value
