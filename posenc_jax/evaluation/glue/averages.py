"""The averages that papers print over GLUE, as data. Papers differ in what they average, so an average has a name.

A score is a (column, metric), a column being what `data.tasks.column` calls a split: "CoLA", "MNLI-m", "MNLI-mm". An
average is the plain mean of its terms, a term the mean of its scores. It exists only when every score is there: a mean
over fewer columns would be a number that nobody else prints.
"""

import dataclasses
import statistics
from collections.abc import Mapping

Term = tuple[str, tuple[tuple[str, str], ...]]
"""What a formula calls it, and the scores whose mean it is."""


@dataclasses.dataclass(frozen=True)
class Average:
    name: str
    terms: tuple[Term, ...]
    source: str

    @property
    def formula(self) -> str:
        """In words: "mean of 9: CoLA matthews, ..."."""
        return f"mean of {len(self.terms)}: {', '.join(label for label, _ in self.terms)}"

    @property
    def scores(self) -> tuple[tuple[str, str], ...]:
        """Every (column, metric) it takes."""
        return tuple(score for _, scores in self.terms for score in scores)


@dataclasses.dataclass(frozen=True)
class NamedAverage:
    """An average of given scores."""

    name: str
    value: float | None
    """In the unit of the scores; None where some are missing."""
    missing: tuple[str, ...]
    """What is missing: a column ("RTE"), or of a column that is there a metric ("MRPC f1")."""
    formula: str
    source: str


def averages(scores: Mapping[str, Mapping[str, float]]) -> list[NamedAverage]:
    """Every average of `AVERAGES`, in its order, from scores[column][metric]."""
    return [compute(average, scores) for average in AVERAGES.values()]


def compute(average: Average, scores: Mapping[str, Mapping[str, float]]) -> NamedAverage:
    """One average, or what it lacks."""
    missing = [
        f"{column} {metric}" if column in scores else column
        for column, metric in average.scores
        if metric not in scores.get(column, {})
    ]
    value = None
    if not missing:
        terms = [statistics.fmean(scores[column][metric] for column, metric in term) for _, term in average.terms]
        value = statistics.fmean(terms)
    return NamedAverage(average.name, value, tuple(dict.fromkeys(missing)), average.formula, average.source)


def _one(column: str, metric: str = "accuracy") -> Term:
    return f"{column} {metric}", ((column, metric),)


def _two(column: str, first: str, second: str) -> Term:
    return f"{column} ({first} + {second}) / 2", ((column, first), (column, second))


_COLA, _WNLI = _one("CoLA", "matthews"), _one("WNLI")
_SST2, _QNLI, _RTE = _one("SST-2"), _one("QNLI"), _one("RTE")
_MNLI_M, _MNLI_MM = _one("MNLI-m"), _one("MNLI-mm")
_MNLI_BOTH: Term = ("(MNLI-m + MNLI-mm) / 2", (*_MNLI_M[1], *_MNLI_MM[1]))
_MRPC, _QQP = _two("MRPC", "accuracy", "f1"), _two("QQP", "accuracy", "f1")
_STSB = _two("STS-B", "pearson", "spearman")

_TUPE = (_MNLI_M, _MNLI_MM, _QNLI, _one("QQP"), _SST2, _COLA, _one("MRPC"), _RTE, _one("STS-B", "pearson"))
_ELECTRA = (_MNLI_M, _QNLI, _one("QQP"), _RTE, _SST2, _one("MRPC"), _COLA, _one("STS-B", "spearman"))
_SYMMETRIC = (_MRPC, _COLA, _MNLI_M, _MNLI_MM, _QQP, _RTE, _STSB, _QNLI, _SST2)
_LEADERBOARD = (_COLA, _SST2, _MRPC, _STSB, _QQP, _MNLI_BOTH, _QNLI, _RTE)

AVERAGES: dict[str, Average] = {
    average.name: average
    for average in (
        Average("TUPE", _TUPE, "tupe.md 3: Tables 1, 3 and 4 of the paper"),
        Average("TUPE + WNLI", (*_TUPE, _WNLI), "our choice: TUPE's with the task it leaves out"),
        Average(
            "ELECTRA",
            _ELECTRA,
            "convbert_and_electra.md 5 and 6: GLUE score of ELECTRA and ConvBERT; the one MNLI number is the matched "
            "one, STS-B's is Spearman",
        ),
        Average("ELECTRA + WNLI", (*_ELECTRA, _WNLI), "our choice: ELECTRA's with the task it leaves out"),
        Average("symmetric", _SYMMETRIC, "ddrp_mth_and_symmetric.md 2.4: nine"),
        Average("symmetric + WNLI", (*_SYMMETRIC, _WNLI), "ddrp_mth_and_symmetric.md 2.4: ten"),
        Average("leaderboard", (*_LEADERBOARD, _WNLI), "gluebenchmark.com: each task's metrics averaged, then tasks"),
        Average("leaderboard - WNLI", _LEADERBOARD, "our choice: the leaderboard's without its odd task"),
    )
}
"""By name, in the order of a table."""
