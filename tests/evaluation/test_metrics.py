"""Metrics against their formulas, written out here once more, and against scikit-learn and SciPy, on random and on
degenerate vectors."""

import math
import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posenc_jax.data.tasks import TASKS
from posenc_jax.evaluation.metrics import METRICS, majority, oddities, score


def counts(labels, predictions):
    true, guess = labels == 1, predictions == 1
    return [float(np.sum(a & b)) for a, b in ((true, guess), (~true, guess), (true, ~guess), (~true, ~guess))]


def f1(labels, predictions):
    tp, fp, fn, _ = counts(labels, predictions)
    return 2 * tp / (2 * tp + fp + fn)


def matthews(labels, predictions):
    tp, fp, fn, tn = counts(labels, predictions)
    return (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))


def pearson(labels, predictions):
    a, b = labels - labels.mean(), predictions - predictions.mean()
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def ranks(values):
    """Mean rank of each value among equals."""
    return np.array([np.mean(np.flatnonzero(np.sort(values) == value)) for value in values])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_class_metrics_equal_their_formulas(seed, share):
    rng = np.random.default_rng(seed)
    labels = (rng.random(97) < share).astype(np.int32)
    predictions = np.where(rng.random(97) < 0.3, 1 - labels, labels)
    assert score("accuracy", labels, predictions) == (pytest.approx(np.mean(labels == predictions)), None)
    assert score("f1", labels, predictions) == (pytest.approx(f1(labels, predictions)), None)
    assert score("matthews", labels, predictions) == (pytest.approx(matthews(labels, predictions)), None)


@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_their_formulas_with_ties(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 11, 60) / 2
    predictions = np.round(labels + rng.normal(0, 1, 60), 1).astype(np.float32)
    assert score("pearson", labels, predictions)[0] == pytest.approx(pearson(labels, predictions), abs=1e-6)
    expected = pearson(ranks(labels), ranks(predictions))
    assert score("spearman", labels, predictions)[0] == pytest.approx(expected, abs=1e-9)


def classes(count):
    """Two vectors of one length, often degenerate: few classes drawn, or one."""
    vector = st.integers(1, 40)
    values = st.integers(0, count - 1)
    return vector.flatmap(
        lambda n: st.tuples(arrays(np.int32, n, elements=values), arrays(np.int32, n, elements=values))
    )


def value_or_zero(function, *arguments, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = float(function(*arguments, **settings))
    return value if math.isfinite(value) else 0.0


@settings(max_examples=150, deadline=None)
@given(classes(3))
def test_of_three_classes_accuracy_and_matthews_are_scikit_learns(vectors):
    labels, predictions = vectors
    assert score("accuracy", labels, predictions)[0] == sklearn.metrics.accuracy_score(labels, predictions)
    expected = value_or_zero(sklearn.metrics.matthews_corrcoef, labels, predictions)
    assert score("matthews", labels, predictions)[0] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(classes(2))
def test_f1_is_scikit_learns_of_the_positive_class_and_has_a_reason_where_it_has_no_value(vectors):
    labels, predictions = vectors
    expected = sklearn.metrics.f1_score(labels, predictions, zero_division=0.0)
    found, why = score("f1", labels, predictions)
    assert found == pytest.approx(expected, abs=1e-12)
    assert (why is not None) == (not labels.any() and not predictions.any())


@settings(max_examples=150, deadline=None)
@given(classes(6))
def test_correlations_are_scipys_and_zero_with_a_reason_where_either_side_is_constant(vectors):
    labels, predictions = (vector.astype(np.float64) for vector in vectors)
    for metric, function in (("pearson", scipy.stats.pearsonr), ("spearman", scipy.stats.spearmanr)):
        found, why = score(metric, labels, predictions)
        constant = len(set(labels)) == 1 or len(set(predictions)) == 1
        assert (why is not None) == constant
        if not constant:
            assert found == pytest.approx(function(labels, predictions).statistic, abs=1e-9)
        assert -1 - 1e-9 <= found <= 1 + 1e-9 and (found == 0 or not constant)


@settings(max_examples=100, deadline=None)
@given(classes(2), classes(2))
def test_the_majority_is_the_score_of_that_one_answer(train, dev):
    answer = int(train[0].mean() > 0.5)  # of equals the lower class
    for metric, function in (("accuracy", sklearn.metrics.accuracy_score), ("matthews", lambda a, b: 0.0)):
        assert majority(metric, train[0], dev[0]) == pytest.approx(function(dev[0], np.full_like(dev[0], answer)))
    expected = sklearn.metrics.f1_score(dev[0], np.full_like(dev[0], answer), zero_division=0.0)
    assert majority("f1", train[0], dev[0]) == pytest.approx(expected)


def test_f1_of_more_than_two_classes_is_refused():
    with pytest.raises(ValueError, match="two classes"):
        score("f1", np.array([0, 1, 2]), np.array([0, 1, 1]))


def test_every_task_has_metrics_that_there_are_and_f1_only_of_two_classes():
    for task in TASKS.values():
        assert task.metrics and set(task.metrics) <= set(METRICS)
        assert "f1" not in task.metrics or len(task.labels) == 2


NLI = ("contradiction", "entailment", "neutral")


def test_labels_in_another_order_are_noticed():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600)
    predictions = np.where(rng.random(600) < 0.8, labels, rng.integers(0, 3, 600))
    assert oddities(labels, predictions, NLI) == []
    swapped = np.array([0, 2, 1])[predictions]
    (said,) = oddities(labels, swapped, NLI)
    assert "labels look permuted" in said and "'entailment' for 'neutral'" in said
    assert oddities(labels, rng.integers(0, 3, 600), NLI) == []  # chance is bad, but no sign of another order


@pytest.mark.parametrize(
    ("labels", "predictions", "says"),
    [
        ([0, 1, 2, 0], [1, 1, 1, 1], ["every prediction is 'entailment'"]),
        ([0, 1, 2, 0], [0, 1, 1, 0], ["never predicted: 'neutral'"]),
        ([0, 1, 1, 0], [0, 1, 2, 0], ["no example is labelled 'neutral'"]),
        ([0, 1, 2], [math.nan] * 3, []),
        ([0, 1, 2], [0, 1, 2], []),
    ],
)
def test_classes_that_never_occur_are_told(labels, predictions, says):
    assert oddities(np.array(labels), np.array(predictions), NLI) == says


def test_f1_is_neither_precision_nor_recall():
    labels, predictions = np.array([1, 1, 1, 0, 0]), np.array([1, 0, 0, 1, 0])
    assert score("f1", labels, predictions)[0] == pytest.approx(0.4)  # precision 1/2, recall 1/3


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("labels", "predictions"),
    [
        ([0, 1, 1, 0], [1, 1, 1, 1]),
        ([0, 1, 1, 0], [0, 0, 0, 0]),
        ([1, 1, 1], [1, 1, 1]),
        ([0, 0, 0], [0, 0, 0]),
        ([0, 0, 0], [1, 0, 1]),
        ([1], [0]),
        ([0, 1, 1], [math.nan, 1, 0]),
        ([0, 1, 1], [math.inf, 1, 0]),
        ([0, 1, 1], [math.nan] * 3),
    ],
)
def test_degenerate_vectors_have_a_defined_value_and_no_warning(metric, labels, predictions):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, why = score(metric, np.array(labels), np.array(predictions))
    assert math.isfinite(value)
    constant = len(set(labels)) == 1 or len(set(predictions)) == 1
    if not np.isfinite(predictions).all() or (constant and metric not in ("accuracy", "f1")):
        assert value == 0.0 and why
    if metric == "accuracy" and np.isfinite(predictions).all():
        assert (value, why) == (np.mean(np.array(labels) == predictions), None)


def test_constant_predictions_that_only_round_differently_correlate_with_nothing_much_and_are_finite():
    predictions = np.full(50, 0.5, np.float32)
    predictions[7] = np.nextafter(predictions[7], np.float32(1))
    value, _ = score("pearson", np.linspace(0, 5, 50), predictions)
    assert math.isfinite(value)


def test_the_majority_is_that_of_the_training_labels():
    train, dev = np.array([1, 1, 0]), np.array([0, 0, 0, 1])
    assert majority("accuracy", train, dev) == 0.25
    assert majority("f1", train, dev) == pytest.approx(0.4)
    assert majority("matthews", train, dev) == 0.0
    assert majority("pearson", np.array([1.0, 2.0]), np.array([0.0, 5.0])) == 0.0


def test_vectors_of_different_length_are_refused():
    with pytest.raises(ValueError, match="do not make"):
        score("accuracy", np.zeros(3), np.zeros(2))
