"""Span heads and their losses against float64 NumPy written from the spec, and their search against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from posenc_jax.config import ModelConfig
from posenc_jax.model.span_heads import HIDDEN, SPAN_HEADS
from posenc_jax.objectives.spans import Spans
from posenc_jax.training.step import combine
from tests.oracle.basics import affine, gelu, softmax
from tests.variants import float64, random_params

MODEL = ModelConfig(layers=1, width=8, heads=2, feed_forward_width=16, vocab_size=30, dropout=0.0, dtype="float64")
B, L = 3, 11
ALLOWED = np.zeros((B, L), int)
ALLOWED[:, 0] = 1
for row, (first, end) in enumerate([(4, 11), (3, 9), (5, 8)]):
    ALLOWED[row, first:end] = 1
START, END, IMPOSSIBLE = np.array([5, 0, 6]), np.array([7, 0, 6]), np.array([0, 1, 0])


def pair(params, first, seconds):
    """[L] of one first vector and L second ones: the published dense layer on their concatenation."""
    both = np.concatenate([np.broadcast_to(first, seconds.shape), seconds], -1)
    hidden = gelu(both @ params["kernel"] + params["bias"])
    return (hidden @ params["output"])[:, 0] + params["output_bias"]


class Oracle:
    """One row at a time."""

    def __init__(self, head, params, hidden, allowed):
        self.head, self.params, self.hidden = head, params, hidden
        self.mask = 1000.0 * (allowed - 1)
        if head == "joint":
            self.start = affine(params["start"], hidden)[:, 0] + self.mask
        else:
            self.start, self.plain_end = (affine(params["output"], hidden)[:, which] + self.mask for which in (0, 1))

    def end(self, start):
        if self.head == "plain":
            return self.plain_end
        return pair(self.params["end"], self.hidden[start], self.hidden) + self.mask

    def impossible(self):
        answer = softmax(self.start) @ self.hidden
        return pair(self.params["impossible"], self.hidden[0], answer[None])[0]

    def loss(self, start, end, impossible):
        loss = -(log_softmax(self.start)[start] + log_softmax(self.end(start))[end]) / 2
        if self.head == "joint":
            z = self.impossible()
            loss += 0.5 * -(impossible * np.log(1 / (1 + np.exp(-z))) + (1 - impossible) * np.log(1 / (1 + np.exp(z))))
        return loss

    def spans(self):
        """Score of every (start, end), and the null score."""
        if self.head == "plain":
            return self.start[:, None] + self.plain_end[None], self.start[0] + self.plain_end[0]
        starts = log_softmax(self.start)
        ends = np.stack([log_softmax(self.end(start)) for start in range(L)])
        return starts[:, None] + ends, self.impossible()


@pytest.fixture(scope="module", params=["joint", "plain"])
def case(request):
    """Head, parameters, hidden vectors, and the oracle of each row."""
    head = SPAN_HEADS[request.param](MODEL)
    hidden = np.random.default_rng(1).normal(size=(B, L, 8))
    with jax.enable_x64(True):
        shapes = jnp.zeros((B, L, 8)), jnp.zeros((B, L)), jnp.zeros(B, jnp.int32)
        params = random_params(head, *shapes, std=0.4)
    return (
        request.param,
        params,
        hidden,
        [Oracle(request.param, float64(params), *row) for row in zip(hidden, ALLOWED, strict=True)],
    )


def apply(name, params, hidden, *args, **options):
    with jax.enable_x64(True):
        head = SPAN_HEADS[name](MODEL)
        run = jax.jit(lambda params, *arrays: head.apply({"params": params}, *arrays, **options))
        arrays = [jnp.asarray(array) for array in (hidden, ALLOWED)]
        return jax.device_get(run(float64(params), *arrays, *args))


def test_logits_are_those_of_the_definition(case):
    name, params, hidden, oracles = case
    logits = apply(name, params, hidden, jnp.asarray(START))
    for row, oracle in enumerate(oracles):
        np.testing.assert_allclose(logits.start_BxL[row], oracle.start, rtol=1e-12)
        np.testing.assert_allclose(logits.end_BxL[row], oracle.end(START[row]), rtol=1e-12)
        if name == "joint":
            np.testing.assert_allclose(logits.impossible_B[row], oracle.impossible(), rtol=1e-12)
    assert logits.start_BxL.dtype == np.float64
    assert (logits.impossible_B is None) == (name == "plain")


@pytest.mark.parametrize("beam", [3, 20])
def test_the_search_finds_the_best_starts_and_their_best_ends(case, beam):
    name, params, hidden, oracles = case
    beams = apply(name, params, hidden, method="search", beam=beam)
    kept = min(beam, L)
    for row, oracle in enumerate(oracles):
        scores, null = oracle.spans()
        starts = np.argsort(-oracle.start, kind="stable")[:kept]
        np.testing.assert_array_equal(beams.start_BxK[row], starts)
        for k, start in enumerate(starts):
            ends = np.argsort(-oracle.end(start), kind="stable")[:kept]
            np.testing.assert_array_equal(beams.end_BxKxK[row, k], ends)
            found = beams.start_score_BxK[row, k] + beams.end_score_BxKxK[row, k]
            np.testing.assert_allclose(found, scores[start, ends], rtol=1e-11)
        np.testing.assert_allclose(beams.null_B[row], null, rtol=1e-11)


def test_ends_know_the_start_in_the_joint_head_alone(case):
    name, params, hidden, _ = case
    a, b = (apply(name, params, hidden, jnp.full(B, start)).end_BxL for start in (0, 5))
    assert (name == "joint") == (np.abs(a - b).max() > 1e-3)


def test_what_is_not_allowed_is_never_chosen(case):
    name, params, hidden, _ = case
    logits = apply(name, params, hidden, jnp.asarray(START))
    for x in (logits.start_BxL, logits.end_BxL):
        assert (x[ALLOWED == 0] < -900).all() and (x[ALLOWED == 1] > -900).all()


def test_new_weights_start_glorot_uniform_and_biases_0():
    for name, count in (("joint", 4), ("plain", 1)):
        model = ModelConfig(layers=1, width=64, heads=2, feed_forward_width=16, vocab_size=30)
        head = SPAN_HEADS[name](model)
        arrays = jnp.zeros((1, 4, 64)), jnp.ones((1, 4)), jnp.zeros(1, jnp.int32)
        init = jax.jit(lambda key, head=head, arrays=arrays: head.init(key, *arrays))
        leaves = jax.tree_util.tree_leaves_with_path(init(jax.random.key(0)))
        for path, leaf in leaves:
            if leaf.ndim == 1:
                assert not leaf.any()
                continue
            bound = np.sqrt(6 / sum(leaf.shape))
            assert 0.9 * bound < np.abs(leaf).max() <= bound, path
        assert name != "joint" or {leaf.shape for _, leaf in leaves} >= {(128, HIDDEN), (HIDDEN, 1), (64, 1)}
        assert len(leaves) == 2 * (count + (1 if name == "joint" else 0))


class Fixed:
    """Stands in for the network: the head on given vectors."""

    def __init__(self, name, hidden):
        self.head, self.hidden = SPAN_HEADS[name](MODEL), hidden

    def apply(self, variables, batch, train, rngs):
        return self.head.apply(variables, self.hidden, batch["allowed"], batch["start"])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_is_that_of_the_definition_and_rows_of_weight_0_do_not_count(case, reduction, monkeypatch):
    name, params, hidden, oracles = case
    monkeypatch.setattr(Spans, "network", property(lambda self: Fixed(name, jnp.asarray(hidden))))
    objective = Spans(MODEL, name, reduction)
    weight = np.array([1.0, 1.0, 0.0])
    with jax.enable_x64(True):
        batch = {"allowed": ALLOWED, "start": START, "end": END, "impossible": IMPOSSIBLE, "weight": weight}
        batch = {key: jnp.asarray(value) for key, value in {**batch, "seed": np.zeros(B, np.uint32)}.items()}

        def loss(params, batch):
            sums, metrics = objective.sums(params, batch, jax.random.key(0), train=True)
            return combine(objective, sums, objective.weights(batch)), metrics

        value, metrics = jax.device_get(jax.jit(loss)(float64(params), batch))
    expected = [oracle.loss(*truth) for oracle, *truth in zip(oracles, START, END, IMPOSSIBLE, strict=True)]
    np.testing.assert_allclose(value, sum(expected[:2]) / (2 if reduction == "mean" else 1), rtol=1e-11)
    assert metrics["span_accuracy"].weight == 2
