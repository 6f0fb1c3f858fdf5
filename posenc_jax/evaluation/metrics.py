"""Metrics over a whole split, by scikit-learn and SciPy, and the baseline that knows only the training labels.

Where a metric has no value (a constant prediction has no correlation, a class nobody predicted no F1) it is 0.0 and a
sentence says why; no NaN ever reaches a table. A metric is of the whole split at once, never a mean over batches:
Matthews, F1 and Pearson of parts do not average to those of the whole.
"""

import warnings
from collections.abc import Callable, Sequence

import numpy as np


def _accuracy(labels_N: np.ndarray, predictions_N: np.ndarray) -> float:
    return float(np.mean(labels_N == predictions_N))


def _f1(labels_N: np.ndarray, predictions_N: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    return f1_score(labels_N, predictions_N, pos_label=1, average="binary", zero_division=0.0)


def _matthews(labels_N: np.ndarray, predictions_N: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(labels_N, predictions_N)


def _pearson(labels_N: np.ndarray, predictions_N: np.ndarray) -> float:
    from scipy.stats import pearsonr

    return pearsonr(labels_N, predictions_N).statistic


def _spearman(labels_N: np.ndarray, predictions_N: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return spearmanr(labels_N, predictions_N).statistic


PERMUTED = 0.2
"""Share more that would be right with other names for the classes, from which on the names are in doubt."""

METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
}
"""F1 is of class 1, the positive one of a two-class task; Matthews takes any number of classes."""


def score(metric: str, labels_N: np.ndarray, predictions_N: np.ndarray) -> tuple[float, str | None]:
    """The metric of a whole split and, where it has no value and 0.0 stands in, a sentence that says why.

    Predictions are classes, or scores for "pearson" and "spearman".
    """
    labels_N = np.asarray(labels_N, np.float64)
    predictions_N = np.asarray(predictions_N, np.float64)
    if labels_N.shape != predictions_N.shape or not labels_N.size:
        raise ValueError(f"{labels_N.shape} labels and {predictions_N.shape} predictions do not make a {metric}")
    if metric == "f1" and not np.isin(labels_N, (0, 1)).all():
        raise ValueError("f1 is of two classes, 0 and 1; the labels have others")
    why = _no_value(metric, labels_N, predictions_N)
    if why:
        return 0.0, f"{metric} is set to 0: {why}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a nearly constant vector: the value is what it is, or NaN, seen below
        value = float(METRICS[metric](labels_N, predictions_N))
    return (value, None) if np.isfinite(value) else (0.0, f"{metric} is set to 0: its value is {value}")


def majority(metric: str, train_labels_N: np.ndarray, labels_N: np.ndarray) -> float:
    """The metric of one constant answer: the most frequent class of the training labels (the lowest of equals), or
    their mean for a score, which has no correlation with anything: 0."""
    if metric in ("pearson", "spearman"):
        return 0.0
    classes, counts = np.unique(train_labels_N, return_counts=True)
    return score(metric, labels_N, np.full_like(labels_N, classes[counts.argmax()]))[0]


def oddities(labels_N: np.ndarray, predictions_N: np.ndarray, names: Sequence[str]) -> list[str]:
    """Sentences about classes that never occur, or whose names look exchanged; `names[i]` is that of class i.

    Sources of a task differ in the order of its labels, and a model scored with another order than it learnt does not
    fail: it scores some points too few, or below chance. So the classes are also matched one to one as suits the
    predictions best, and a gain of `PERMUTED` or more is told. (WNLI's dev set, which has train's texts with the
    labels turned, may be told of too.)
    """
    known_N = np.isfinite(predictions_N)
    truth_N, guess_N = np.asarray(labels_N)[known_N].astype(int), np.asarray(predictions_N)[known_N].astype(int)
    if not len(truth_N):
        return []
    said = []
    guessed = np.unique(guess_N)
    if len(guessed) == 1:
        said.append(f"every prediction is {names[guessed[0]]!r}")
    elif absent := [name for i, name in enumerate(names) if i not in guessed]:
        said.append(f"never predicted: {', '.join(map(repr, absent))}")
    if absent := [name for i, name in enumerate(names) if i not in truth_N]:
        said.append(f"no example is labelled {', '.join(map(repr, absent))}")
    if len(guessed) > 1:
        from scipy.optimize import linear_sum_assignment

        counts_CxC = np.zeros((len(names), len(names)))
        np.add.at(counts_CxC, (guess_N, truth_N), 1)
        match_C = linear_sum_assignment(counts_CxC, maximize=True)[1]
        now, best = np.trace(counts_CxC) / len(truth_N), counts_CxC[np.arange(len(names)), match_C].sum() / len(truth_N)
        if best - now >= PERMUTED:
            other = ", ".join(f"{names[i]!r} for {names[k]!r}" for i, k in enumerate(match_C) if i != k)
            said.append(f"labels look permuted: {now:.1%} right, but {best:.1%} if predictions said {other}")
    return said


def _no_value(metric: str, labels_N: np.ndarray, predictions_N: np.ndarray) -> str | None:
    if not np.isfinite(predictions_N).all():
        return f"{np.count_nonzero(~np.isfinite(predictions_N))} predictions are not finite"
    if metric == "accuracy":
        return None
    if metric == "f1":
        return None if (labels_N == 1).any() or (predictions_N == 1).any() else "the positive class never occurs"
    for name, values_N in (("prediction", predictions_N), ("label", labels_N)):
        if (values_N == values_N[0]).all():
            return f"every {name} is {values_N[0]:g}"
    return None
