"""AdamW with the papers' options, and learning-rate schedules."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from posenc_jax.config import OptimizerConfig


def make_schedule(config: OptimizerConfig, total_steps: int, warmup_steps: int) -> optax.Schedule:
    """Update number from 0 -> learning rate: linear from 0 to the peak, then down to 0 at `total_steps` or level.

    The first update has rate 0, as in the published TUPE runs (tupe.md 2.1). `linear_product` is
    peak * (1 - t / total) * min(1, t / warmup) (convbert_and_electra.md 4), which never reaches the peak.
    """
    peak, rest = config.learning_rate, max(1, total_steps - warmup_steps)
    if config.schedule == "linear_product":
        fall = optax.linear_schedule(peak, 0.0, max(1, total_steps))
        rise = optax.linear_schedule(0.0, 1.0, warmup_steps) if warmup_steps else optax.constant_schedule(1.0)
        return lambda step: fall(step) * rise(step)
    after = {
        "linear": optax.linear_schedule(peak, 0.0, rest),
        "cosine": optax.cosine_decay_schedule(peak, rest),
        "constant": optax.constant_schedule(peak),
    }[config.schedule]
    if warmup_steps == 0:
        return after
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup_steps), after], [warmup_steps])


def make_optimizer(config: OptimizerConfig, total_steps: int, warmup_steps: int) -> optax.GradientTransformation:
    """Clip by global norm, then AdamW with decoupled decay on all parameters, or not on norms and biases."""
    mask = functools.partial(decayed, norms_and_biases=config.decay_norms_and_biases)
    moments = optax.scale_by_adam if config.bias_correction else scale_by_uncorrected_adam
    adam = optax.chain(
        moments(b1=config.b1, b2=config.b2, eps=config.eps),
        optax.add_decayed_weights(config.weight_decay, mask),
        optax.scale_by_learning_rate(make_schedule(config, total_steps, warmup_steps)),
    )
    return adam if config.clip_norm is None else optax.chain(optax.clip_by_global_norm(config.clip_norm), adam)


def scale_by_uncorrected_adam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """m / (sqrt(v) + eps) as it stands: the optimizer of BERT, ELECTRA and ConvBERT (convbert_and_electra.md 4)."""

    def init(params: optax.Params) -> optax.ScaleByAdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return optax.ScaleByAdamState(count=jnp.zeros((), jnp.int32), mu=zeros, nu=zeros)

    def update(grads: Any, state: optax.ScaleByAdamState, params: Any = None) -> tuple[Any, optax.ScaleByAdamState]:
        del params
        mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, grads, state.mu)
        nu = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * jnp.square(g), grads, state.nu)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
        return updates, optax.ScaleByAdamState(count=optax.safe_increment(state.count), mu=mu, nu=nu)

    return optax.GradientTransformation(init, update)


def decayed(params: Any, norms_and_biases: bool) -> Any:
    """Tree of booleans: False for what is named "factor", which starts at 1 and must not be pulled to 0 (DDRP's
    directions), and unless `norms_and_biases` for biases and the gains of norms."""

    def is_decayed(path: tuple, leaf: Any) -> bool:
        name = next(str(entry.key) for entry in reversed(path) if hasattr(entry, "key"))
        return name != "factor" and (norms_and_biases or not (name == "scale" or name.endswith("bias")))

    return jax.tree_util.tree_map_with_path(is_decayed, params)
