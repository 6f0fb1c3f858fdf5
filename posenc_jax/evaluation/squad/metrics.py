"""Exact match and F1 of answers, as the official SQuAD scripts count them (evaluate-v1.1 and evaluate-v2.0)."""

import collections
import dataclasses
import re
import string
from collections.abc import Callable, Mapping, Sequence

from posenc_jax.data.squad import Question, Version

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, without a, an, the, with single spaces; in this order."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    return float(normalise(prediction) == normalise(gold))


def f1(prediction: str, gold: str, version: Version) -> float:
    """Harmonic mean of precision and recall over the bag of words. Two empty bags are 1 in version 2.0, 0 in 1.1."""
    ours, theirs = normalise(prediction).split(), normalise(gold).split()
    if version == "2.0" and not (ours and theirs):
        return float(ours == theirs)
    common = sum((collections.Counter(ours) & collections.Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs)) if common else 0.0


def golds(question: Question, version: Version) -> list[str]:
    """Texts to compare with. Version 2.0 leaves out those that normalise to nothing, and has "" where none is left."""
    texts = [answer.text for answer in question.answers]
    return texts if version == "1.1" else [text for text in texts if normalise(text)] or [""]


@dataclasses.dataclass(frozen=True)
class Scores:
    """By question id, each the best over the question's golds, 0 to 1."""

    exact: dict[str, float]
    f1: dict[str, float]


def score_answers(questions: Sequence[Question], predictions: Mapping[str, str], version: Version) -> Scores:
    """Scores of `predictions` (id -> text; "" is "there is no answer"), of which every question must have one."""
    exact, overlap = {}, {}
    for question in questions:
        text, texts = predictions[question.id], golds(question, version)
        exact[question.id] = max(exact_match(text, gold) for gold in texts)
        overlap[question.id] = max(f1(text, gold, version) for gold in texts)
    return Scores(exact, overlap)


def summary(questions: Sequence[Question], scores: Scores) -> dict[str, float]:
    """Means x 100 as the scripts name them: "exact", "f1", "total", and where some questions are impossible the same
    over those with an answer ("HasAns_exact" ...) and without ("NoAns_exact" ...)."""
    groups = {"": [question.id for question in questions]}
    if any(question.impossible for question in questions):
        groups["HasAns_"] = [question.id for question in questions if not question.impossible]
        groups["NoAns_"] = [question.id for question in questions if question.impossible]
    means: dict[str, float] = {}
    for name, ids in groups.items():
        if ids:
            means[f"{name}exact"] = 100 * sum(scores.exact[number] for number in ids) / len(ids)
            means[f"{name}f1"] = 100 * sum(scores.f1[number] for number in ids) / len(ids)
            means[f"{name}total"] = len(ids)
    return means


def with_threshold(predictions: Mapping[str, str], null_odds: Mapping[str, float], threshold: float) -> dict[str, str]:
    """ "" where the odds of no answer are above `threshold`."""
    return {number: "" if null_odds[number] > threshold else text for number, text in predictions.items()}


def best_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """The highest mean x 100 of `scores` that any threshold gives on these very questions, and that threshold.

    `scores` and `predictions` are those without any threshold. The official search: nothing is answered at first, then
    one question after the other in the order of their odds; with equal odds it may count between two of them what no
    threshold gives.
    """
    current = best = sum(question.impossible for question in questions)
    impossible = {question.id: question.impossible for question in questions}
    threshold = 0.0
    for number in sorted(impossible, key=null_odds.__getitem__):
        if impossible[number]:
            current += -1 if predictions[number] else 0
        else:
            current += scores[number]
        if current > best:
            best, threshold = current, null_odds[number]
    return 100 * best / len(questions), threshold


Draw = Callable[[int], int]


def random_spans(questions: Sequence[Question], lengths: Sequence[int], draw: Draw) -> dict[str, str]:
    """Chance: for each question a run of words from its context, as many as some answer of the training set has.

    `lengths` are words of training answers; `draw(n)` picks a number below n.
    """
    found = {}
    for question in questions:
        words = question.context.split()
        count = min(lengths[draw(len(lengths))], len(words))
        first = draw(len(words) - count + 1)
        found[question.id] = " ".join(words[first : first + count])
    return found
