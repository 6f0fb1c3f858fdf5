"""The fine-tuning objective: published head and losses, and rows that only fill up count for nothing."""

import dataclasses
import functools

import jax
import numpy as np
from flax import linen as nn

from posenc_jax.config import ModelConfig, PositionConfig
from posenc_jax.model.encoder import Encoder
from posenc_jax.objectives.supervised import Supervised

MODEL = ModelConfig(
    layers=1,
    width=16,
    heads=2,
    feed_forward_width=32,
    vocab_size=50,
    positions=PositionConfig(max_length=16),
    dropout=0.1,
)


def batch(rows=6, filled=None, labels=None, seed=0):
    rng = np.random.default_rng(0)
    tokens_BxL = rng.integers(5, 50, (rows, 8)).astype(np.int32)
    tokens_BxL[:, 6:] = 0
    return {
        "tokens": tokens_BxL,
        "segments": (tokens_BxL > 0).astype(np.int32),
        "labels": rng.integers(0, 2, rows).astype(np.int32) if labels is None else labels,
        "weight": (np.arange(rows) < (filled or rows)).astype(np.float32),
        "seed": np.full(rows, seed, np.uint32),
    }


@functools.cache
def parameters(objective):
    return jax.jit(lambda: nn.unbox(objective.init(jax.random.key(1))))()


@functools.partial(jax.jit, static_argnums=(0, 3))
def loss(objective, params, examples, train=False):
    sums, metrics = objective.sums(params, examples, jax.random.key(0), train)
    return sums["supervised"], objective.weights(examples)["supervised"], metrics


@functools.partial(jax.jit, static_argnums=0)
def predict(objective, params, examples):
    return objective.predict(params, examples)


def test_class_loss_is_the_cross_entropy_of_the_rows_that_count():
    objective, examples = Supervised(MODEL, 2), batch(filled=4)
    params = parameters(objective)
    logits_BxC = np.asarray(predict(objective, params, examples), np.float64)
    log_p_BxC = logits_BxC - np.log(np.exp(logits_BxC).sum(-1, keepdims=True))
    total, weight, metrics = loss(objective, params, examples)
    assert weight == 4
    np.testing.assert_allclose(total, -log_p_BxC[np.arange(4), examples["labels"][:4]].sum(), rtol=1e-5)
    assert metrics["accuracy"] == ((logits_BxC.argmax(-1) == examples["labels"])[:4].sum(), 4)


def test_scores_are_learned_a_fifth_as_large():
    labels = np.linspace(0, 5, 6, dtype=np.float32)
    objective, examples = Supervised(MODEL, 1), batch(filled=5, labels=labels)
    params = parameters(objective)
    logits_B = np.asarray(predict(objective, params, examples))[:, 0]
    total, weight, _ = loss(objective, params, examples)
    np.testing.assert_allclose(total / weight, np.mean((logits_B - labels / 5)[:5] ** 2), rtol=1e-5)


def test_rows_that_only_fill_up_change_no_gradient():
    objective, examples = Supervised(MODEL, 2), batch(filled=4)
    params = parameters(objective)

    @jax.jit
    @jax.grad
    def gradient(params, examples):
        total, weight, _ = loss(objective, params, examples)
        return total / weight

    others = {name: rows.copy() for name, rows in examples.items()}
    others["tokens"][4:], others["labels"][4:] = 9, 1 - others["labels"][4:]
    for a, b in zip(*(jax.tree.leaves(gradient(params, rows)) for rows in (examples, others)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_answer_is_read_at_the_first_place():
    objective, examples = Supervised(MODEL, 2), batch()
    params, later = parameters(objective), np.arange(8) > 0
    segments = examples["segments"] * np.where(later, 2, 1).astype(np.int32)
    apart = {**examples, "segments": segments}  # [CLS] meets itself only
    others = {**apart, "tokens": np.where(later & (apart["tokens"] > 0), 7, apart["tokens"]).astype(np.int32)}
    np.testing.assert_array_equal(predict(objective, params, apart), predict(objective, params, others))
    assert not np.array_equal(predict(objective, params, apart), predict(objective, params, examples))


def test_the_single_head_is_one_dense_layer_on_the_first_word():
    objective, examples = Supervised(MODEL, 3, head="single"), batch()
    params = parameters(objective)
    assert jax.tree.map(np.shape, params["head"]) == {"output": {"kernel": (16, 3), "bias": (3,)}}
    encode = jax.jit(Encoder(MODEL).apply)
    hidden_BxD = encode({"params": params["encoder"]}, examples["tokens"], examples["segments"])[:, 0]
    kernel_DxC, bias_C = (np.asarray(params["head"]["output"][name], np.float64) for name in ("kernel", "bias"))
    assert np.abs(kernel_DxC).max() <= (6 / (16 + 3)) ** 0.5 and np.abs(kernel_DxC).max() > 0.4 and not bias_C.any()
    logits_BxC = np.asarray(hidden_BxD, np.float64) @ kernel_DxC
    np.testing.assert_allclose(predict(objective, params, examples), logits_BxC, rtol=1e-5, atol=1e-6)
    assert loss(objective, params, examples, True)[0] != loss(objective, params, examples)[0]  # its input is dropped


def test_the_sum_over_a_batch_is_the_mean_times_its_rows():
    mean, total = Supervised(MODEL, 2), Supervised(MODEL, 2, reduction="sum")
    params, examples = parameters(mean), batch(filled=4)
    losses = [loss(one, params, examples) for one in (mean, total)]
    assert losses[0][0] == losses[1][0] and (losses[0][1], losses[1][1]) == (4, 1)


def test_dropout_is_the_seed_s_own():
    objective = Supervised(MODEL, 2)
    params = parameters(objective)
    first, again, other = (loss(objective, params, batch(seed=seed), True)[0] for seed in (0, 0, 1))
    assert first == again != other


def test_token_types_reach_the_encoder():
    model = dataclasses.replace(MODEL, token_types=2)
    objective, examples = Supervised(model, 2), batch()
    params = parameters(objective)
    typed = {**examples, "types": np.eye(8, dtype=np.int32)[:6]}
    assert np.abs(predict(objective, params, typed) - predict(objective, params, examples)).max() > 1e-3
    first = {**examples, "types": np.zeros((6, 8), np.int32)}
    np.testing.assert_array_equal(predict(objective, params, first), predict(objective, params, examples))
