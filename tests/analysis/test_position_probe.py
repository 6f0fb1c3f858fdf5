"""The position probe learns what is there, and its contributions are the formula's, with the trap that is in them."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from posenc_jax.analysis.position_probe import (
    Probe,
    best_non_outlier,
    contribution_heatmap,
    contributions,
    probe_accuracy,
    probe_answers,
    train_position_probe,
    weight_rank,
)

CONSTANT, WIDTH, POSITIONS = 6, 128, 60
"""The sizes of the simulation in positional_artefacts.md, trap 6: there the contribution was 0.87, the mean 0.13."""


def tokens(seed, count=3000, constant=-15.0):
    """Positions, small ones often, and states that tell them with noise; one dimension is the same in all."""
    rng = np.random.default_rng(seed)
    position_N = np.minimum(rng.geometric(0.1, count) - 1, POSITIONS - 3).astype(np.int32)
    table = np.random.default_rng(99).normal(size=(POSITIONS, WIDTH))
    states = table[position_N] + rng.normal(size=(count, WIDTH))
    states[:, CONSTANT] = constant
    return states.astype(np.float32), position_N


@pytest.fixture(scope="module", params=[False, True], ids=["no bias", "bias"])
def probe(request):
    return train_position_probe(*tokens(0), positions=POSITIONS, bias=request.param, rate=1e-2)


def test_the_constant_neuron_trap_and_its_control(probe):
    """A dimension that says nothing of positions contributes most, with a bias too; centred it contributes nothing
    (positional_artefacts.md, trap 6)."""
    states, position_N = tokens(1)
    for mode in ("gold", "pred", "all"):
        raw = contributions(probe, states, position_N, mode=mode, center=False)
        centred = contributions(probe, states, position_N, mode=mode, center=True)
        raw, centred = (values.mean(0) if mode == "all" else values for values in (raw, centred))
        assert raw.argmax() == CONSTANT and raw[CONSTANT] > 3 * raw.mean()
        assert centred[CONSTANT] < 1e-6 and centred.argmin() == CONSTANT
    other = np.arange(WIDTH) != CONSTANT
    without = train_position_probe(states[:, other], position_N, positions=POSITIONS, rate=1e-2)
    alone = train_position_probe(states[:, ~other], position_N, positions=POSITIONS, rate=1e-2)
    held_out, where = tokens(2)
    whole = probe_accuracy(probe, held_out, where)
    assert probe_accuracy(without, held_out[:, other], where).accuracy > whole.accuracy - 0.05
    assert probe_accuracy(alone, held_out[:, ~other], where).accuracy <= whole.majority + 1e-9


@pytest.fixture(scope="module")
def theirs():
    return LogisticRegression(max_iter=50).fit(*tokens(0)).score(*tokens(2))


def test_a_probe_answers_as_well_as_scikit_learns(probe, theirs):
    found = probe_accuracy(probe, *tokens(2))
    assert found.accuracy > theirs - 0.03 > 0.9
    assert found.majority < 0.2 and found.macro > 0.8
    assert all(late < early for early, late in zip(probe.losses, probe.losses[3:], strict=False))
    assert (probe.bias_P is None) or probe.bias_P.shape == (POSITIONS,)


def test_accuracy_macro_and_majority_are_counted_by_hand():
    probe = Probe(np.eye(4), None, ())
    states, position_N = np.eye(4)[[0, 0, 0, 1, 2, 1]], np.array([0, 0, 0, 0, 2, 1])
    found = probe_accuracy(probe, states, position_N)
    assert found.accuracy == pytest.approx(5 / 6) and found.majority == pytest.approx(4 / 6)
    np.testing.assert_allclose(found.per_position_P, [3 / 4, 1, 1, np.nan])
    assert found.macro == pytest.approx((3 / 4 + 1 + 1) / 3)


def test_states_without_positions_give_the_majority(rng):
    position_N = np.minimum(rng.geometric(0.3, 2000) - 1, 9)
    noise = rng.normal(size=(2000, 8)).astype(np.float32)
    probe = train_position_probe(noise, position_N, positions=12, bias=True)
    held_out = probe_accuracy(probe, rng.normal(size=(2000, 8)).astype(np.float32), position_N)
    assert held_out.accuracy < held_out.majority + 0.03 and held_out.macro < 0.2


def test_training_is_a_function_of_the_seed_and_sees_every_token(rng):
    states, position_N = tokens(0, count=130)  # one full batch and two tokens
    options = dict(positions=POSITIONS, epochs=1)
    one, again, other = (train_position_probe(states, position_N, seed=seed, **options) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.weights_PxD, again.weights_PxD)
    assert (one.weights_PxD != other.weights_PxD).any()
    whole = train_position_probe(states, position_N, batch=130, **options)
    assert whole.losses[0] == pytest.approx(np.log(POSITIONS), rel=1e-5)  # weights start at 0
    filled_up = train_position_probe(states, position_N, batch=200, positions=POSITIONS, epochs=2)
    twice = train_position_probe(states, position_N, batch=130, positions=POSITIONS, epochs=2)
    np.testing.assert_allclose(filled_up.losses, twice.losses, rtol=1e-6)
    # One Adam step from 0 is the learning rate against the sign of the gradient of the mean over all tokens.
    wanted = np.full((130, POSITIONS), 1 / POSITIONS) - np.eye(POSITIONS)[position_N]
    gradient = wanted.T @ states.astype(np.float64) / 130
    is_clear = np.abs(gradient) > 1e-4
    np.testing.assert_allclose(whole.weights_PxD[is_clear], -1e-3 * np.sign(gradient)[is_clear], rtol=1e-3)


@pytest.mark.parametrize("center", [True, False])
def test_contributions_are_the_formula(center, rng):
    weights, states, position_N = rng.normal(size=(5, 7)), rng.normal(1, 1, (40, 7)), rng.integers(0, 5, 40)
    probe = Probe(weights, None, ())
    values = states - states.mean(0) if center else states
    answers = probe_answers(probe, states)
    np.testing.assert_array_equal(answers, (states @ weights.T).argmax(1))
    for mode, row_N in (("gold", position_N), ("pred", answers)):
        expected = np.mean([np.abs(weights[p] * v) for p, v in zip(row_N, values, strict=True)], axis=0)
        np.testing.assert_allclose(contributions(probe, states, position_N, mode=mode, center=center), expected)
    expected = np.array([[np.mean([abs(w * v[i]) for v in values]) for i, w in enumerate(row)] for row in weights])
    np.testing.assert_allclose(contributions(probe, states, mode="all", center=center), expected)
    np.testing.assert_array_equal(weight_rank(probe), np.argsort(-np.abs(weights).sum(0)))
    with pytest.raises(ValueError, match="position of each of the 40"):
        contributions(probe, states, mode="gold", center=center)


def test_heat_maps_and_the_best_other_dimension(rng):
    weights, means = rng.normal(size=(2, 5, 7)), rng.normal(size=(2, 7))
    np.testing.assert_allclose(contribution_heatmap(weights, means, 3), np.abs(weights[:, :, 3] * means[:, None, 3]))
    best, dim = best_non_outlier(weights, means, [3, 5])
    for layer in range(2):
        for p in range(5):
            sizes = {i: abs(weights[layer, p, i] * means[layer, i]) for i in range(7) if i not in (3, 5)}
            assert dim[layer, p] == max(sizes, key=sizes.get) and best[layer, p] == pytest.approx(max(sizes.values()))
    with pytest.raises(ValueError, match="same layers"):
        contribution_heatmap(weights, means[:1], 3)


@pytest.mark.parametrize("position_N", [[0, 5], [-1, 0], [0]])
def test_positions_without_a_class_or_a_token_are_refused(position_N):
    with pytest.raises(ValueError):
        train_position_probe(np.zeros((2, 3), np.float32), np.array(position_N), positions=5)
