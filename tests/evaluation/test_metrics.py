"""Metrics against their formulas, written out here once more, on random and on degenerate vectors."""

import math
import warnings

import numpy as np
import pytest

from posenc_jax.evaluation.metrics import METRICS, majority, score


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
