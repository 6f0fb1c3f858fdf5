"""AdamW with the papers' options, and learning-rate schedules."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from posenc_jax.config import OptimizerConfig


def make_schedule(config: OptimizerConfig, total_steps: int, warmup_steps: int) -> optax.Schedule:
    """Update number from 0 -> learning rate: linear from 0 to the peak, then down to 0 at `total_steps` or level.

    The first update has rate 0, as in the published TUPE runs (tupe.md 2.1).
    """
    peak, rest = config.learning_rate, max(1, total_steps - warmup_steps)
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
    mask: Callable[[Any], Any] | None = None if config.decay_norms_and_biases else decayed
    adam = optax.adamw(
        make_schedule(config, total_steps, warmup_steps),
        b1=config.b1,
        b2=config.b2,
        eps=config.eps,
        weight_decay=config.weight_decay,
        mask=mask,
    )
    return adam if config.clip_norm is None else optax.chain(optax.clip_by_global_norm(config.clip_norm), adam)


def decayed(params: Any) -> Any:
    """Tree of booleans: False for biases and the gains of norms."""

    def is_decayed(path: tuple, leaf: Any) -> bool:
        name = next(str(entry.key) for entry in reversed(path) if hasattr(entry, "key"))
        return not (name == "scale" or name.endswith("bias"))

    return jax.tree_util.tree_map_with_path(is_decayed, params)
