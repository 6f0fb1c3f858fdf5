import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.config import OptimizerConfig
from posenc_jax.training.optimizer import decayed, make_optimizer, make_schedule


def test_linear_schedule_is_the_published_one():
    """tupe.md 2.1: 1e-4 * u / 10,000 up to u = 10,000, then 1e-4 * (1 - (u - 10,000) / 990,000)."""
    schedule = make_schedule(OptimizerConfig(), 1_000_000, 10_000)
    for update, want in [(0, 0.0), (1, 1e-8), (5000, 5e-5), (10_000, 1e-4), (505_000, 5e-5), (1_000_000, 0.0)]:
        np.testing.assert_allclose(schedule(update), want, atol=1e-11)


@pytest.mark.parametrize(("name", "middle", "end"), [("linear", 0.5, 0), ("cosine", 0.5, 0), ("constant", 1, 1)])
@pytest.mark.parametrize("warmup", [0, 10])
def test_schedules_meet_the_peak_and_the_end(name, middle, end, warmup):
    schedule = make_schedule(OptimizerConfig(learning_rate=2.0, schedule=name), 110 + warmup - 10, warmup)
    steps = 100
    np.testing.assert_allclose(
        [schedule(warmup), schedule(warmup + steps // 2), schedule(warmup + steps)], [2, 2 * middle, 2 * end], atol=1e-6
    )


def test_linear_product_falls_from_the_start_and_warms_up_by_a_factor():
    """convbert_and_electra.md 4: lr(t) = lr * (1 - t / T) * min(1, t / W)."""
    schedule = make_schedule(OptimizerConfig(learning_rate=2.0, schedule="linear_product"), 100, 10)
    for t in (0, 1, 5, 10, 11, 60, 100):
        np.testing.assert_allclose(schedule(t), 2.0 * (1 - t / 100) * min(1, t / 10), atol=1e-6)
    assert make_schedule(OptimizerConfig(learning_rate=2.0, schedule="linear_product"), 100, 0)(0) == 2.0


def test_without_bias_correction_adam_is_as_google_wrote_it():
    config = OptimizerConfig(
        learning_rate=0.1, schedule="constant", b2=0.98, weight_decay=0.3, clip_norm=None, bias_correction=False
    )
    optimizer, x, m, v = make_optimizer(config, 100, 0), 1.0, 0.0, 0.0
    params = {"kernel": jnp.ones(())}
    state = optimizer.init(params)
    for g in (0.1, 3.0, -1.0):
        updates, state = optimizer.update({"kernel": jnp.float32(g)}, state, params)
        params = {"kernel": params["kernel"] + updates["kernel"]}
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        x -= 0.1 * (m / (np.sqrt(v) + 1e-6) + 0.3 * x)
        np.testing.assert_allclose(params["kernel"], x, rtol=1e-5)


def adamw_by_hand(config, gradients, decay):
    x, m, v = 1.0, 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        m = config.b1 * m + (1 - config.b1) * g
        v = config.b2 * v + (1 - config.b2) * g * g
        step = (m / (1 - config.b1**t)) / (np.sqrt(v / (1 - config.b2**t)) + config.eps)
        x -= config.learning_rate * (step + decay * x)
    return x


@pytest.mark.parametrize("everywhere", [True, False])
def test_adamw_with_clipping_equals_the_formula_and_decays_what_it_should(everywhere):
    config = OptimizerConfig(
        learning_rate=0.1, schedule="constant", weight_decay=0.3, decay_norms_and_biases=everywhere, clip_norm=1.0
    )
    optimizer = make_optimizer(config, 100, 0)
    params = {"kernel": jnp.ones(()), "bias": jnp.ones(()), "norm": {"scale": jnp.ones(())}, "query_bias": jnp.ones(())}
    state, gradients = optimizer.init(params), [0.1, 3.0, -1.0, 0.2]
    for g in gradients:
        grads = {
            "kernel": jnp.float32(g),
            "bias": jnp.float32(g),
            "norm": {"scale": jnp.float32(g)},
            "query_bias": jnp.float32(g),
        }
        updates, state = optimizer.update(grads, state, params)
        params = {
            "kernel": params["kernel"] + updates["kernel"], "bias": params["bias"] + updates["bias"],
            "norm": {"scale": params["norm"]["scale"] + updates["norm"]["scale"]},
            "query_bias": params["query_bias"] + updates["query_bias"],
        }  # fmt: skip
    clipped = [g / max(1.0, 2 * abs(g)) for g in gradients]  # four equal gradients: their norm is 2 |g|
    np.testing.assert_allclose(params["kernel"], adamw_by_hand(config, clipped, 0.3), rtol=1e-5)
    small = adamw_by_hand(config, clipped, 0.3 if everywhere else 0.0)
    for leaf in (params["bias"], params["norm"]["scale"], params["query_bias"]):
        np.testing.assert_allclose(leaf, small, rtol=1e-5)


def test_tables_and_kernels_decay_gains_and_biases_if_asked_and_factors_never():
    always = dict.fromkeys(("table", "depthwise", "distance", "words", "kernel", "dense_kernel"), True)
    asked, never = ("bias", "scale", "dense_bias"), {"factor": False}
    for norms_and_biases in (True, False):
        want = {**always, **dict.fromkeys(asked, norms_and_biases), **never}
        assert decayed(dict.fromkeys(want, 0), norms_and_biases) == want
