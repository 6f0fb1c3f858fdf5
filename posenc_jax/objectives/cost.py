"""What a step of pre-training costs, counted and not timed."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import Config, ModelConfig
from posenc_jax.model.cost import count_flops, encoder_flops
from posenc_jax.objectives.mlm import Mlm
from posenc_jax.objectives.rtd import Rtd, generator_config


class StepFlops(NamedTuple):
    """Floating-point operations of one step over the whole batch, on all devices together."""

    encoder: float
    """Of the encoder; with replaced-token detection of both networks' encoders."""
    heads: float
    """Of what stands on it: heads, losses, sampling, penalties on likeness."""

    @property
    def total(self) -> float:
        return self.encoder + self.heads


def step_flops(config: Config, length: int) -> StepFlops:
    """Three times the forward pass over `train.batch_size` rows of `length` words: a backward pass makes two products
    for each one of the forward pass. What `model.remat` computes again, dropout, masking and the optimizer are not in
    it. Counted as `model.cost.encoder_flops` counts. `model.vocab_size` must be set.
    """
    encoder = sum(encoder_flops(network, length) for network in networks(config))
    total = _forward_flops(config, length)
    times = 3 * config.train.batch_size
    return StepFlops(times * encoder, times * (total - encoder))


def networks(config: Config) -> list[ModelConfig]:
    """The encoders that a step runs; the same twice where the discriminator is its own generator."""
    if config.objective == "rtd" and config.rtd.generator != "uniform":
        return [config.model, generator_config(config.model, config.rtd)]
    return [config.model]


def _forward_flops(config: Config, length: int) -> int:
    """Of the losses of one row, by XLA's programs as in `encoder_flops`."""
    model = dataclasses.replace(config.model, kernels="xla")
    starts = None if config.mlm.unit == "token" else (True,) * config.model.vocab_size  # changes no shape
    shared = dict(starts=starts, differentiation=config.differentiation)
    if config.objective == "rtd":
        objective = Rtd(model, config.mlm, config.rtd, **shared)
    else:
        objective = Mlm(model, config.mlm, **shared)
    key = jax.random.key(0)
    row_1xL = jax.ShapeDtypeStruct((1, length), jnp.int32)
    batch = {"tokens": row_1xL, "segments": row_1xL, "row": jax.ShapeDtypeStruct((1,), jnp.int32)}
    params = jax.eval_shape(lambda: nn.unbox(objective.init(key)))
    examples = jax.eval_shape(objective.prepare, batch, key)
    return count_flops(lambda params, examples: objective.sums(params, examples, key, False)[0], params, examples)
