"""What mixes the words of a layer: half attention and half span-dynamic convolution (ConvBERT, Jiang et al. 2020)
against attention alone at the same width. Operations are counted, time is measured, by length and batch.

The sizes are our choice: the spec has no figure of the paper's to set beside these (convbert_and_electra.md 6.6).
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from posenc_jax.config import ModelConfig
from posenc_jax.config_files import load_config
from posenc_jax.evaluation.bench.ratio import figure, ratios
from posenc_jax.evaluation.bench.turns import threads
from posenc_jax.evaluation.tables import Table
from posenc_jax.model.attention import Attention, Context
from posenc_jax.model.cost import count_flops
from posenc_jax.parallel.forward import jit_forward
from posenc_jax.positions import Places

BLOCKS = {"attention": "configs/convbert.py:attention", "mixed": "configs/convbert.py:convbert"}
LENGTHS, BATCHES = (64, 128, 256, 512), (1, 8, 32)
TURN_SECONDS = 0.1
"""A turn calls a short block as often as fills this."""


def block_config(name: str, size: str) -> ModelConfig:
    """float32, a size of configs/convbert.py, whose positions come in before the layers."""
    return load_config(f"{BLOCKS[name]},{size}", {"model.dtype": "float32", "model.positions.scheme": "none"}).model


def block(config: ModelConfig, batch: int, length: int) -> tuple[Callable[[Any, jax.Array], jax.Array], Any]:
    """f(params, x [batch, length, D]) -> [batch, length, D] of the mixing block, with its projections and without the
    feed-forward, every row one document; and the shapes of its parameters."""
    mixer = Attention(config)

    def context() -> Context:
        places = Places(jnp.arange(length)[None], aligned=True)
        return Context(jnp.ones((batch, length), jnp.int32), places, None, None)

    x_BxLxD = jax.ShapeDtypeStruct((batch, length, config.width), jnp.float32)
    params = jax.eval_shape(lambda key, x: mixer.init(key, x, context(), False), jax.random.key(0), x_BxLxD)
    return lambda params, x: mixer.apply(params, x, context(), False), nn.unbox(params)


def block_flops(config: ModelConfig, batch: int, length: int) -> int:
    """Floating-point operations of a forward pass, as `model.cost.encoder_flops` counts."""
    f, params = block(dataclasses.replace(config, kernels="xla"), batch, length)
    return count_flops(f, params, jax.ShapeDtypeStruct((batch, length, config.width), jnp.float32))


def block_facts(
    size: str, rounds: int, lengths: Sequence[int] = LENGTHS, batches: Sequence[int] = BATCHES
) -> Iterator[dict[str, Any]]:
    """Of each length and batch: "flops" and "seconds" of a call, one a round, by block. The blocks take turns in this
    process, as one thread pool serves both."""
    configs = {name: block_config(name, size) for name in BLOCKS}
    for length in lengths:
        for batch in batches:
            calls = {name: _call(config, batch, length) for name, config in configs.items()}
            once = max(_seconds(call, 1) for call in calls.values())
            count = max(1, math.ceil(TURN_SECONDS / once))
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            for number in range(rounds):
                for name in list(calls)[:: 1 if number % 2 == 0 else -1]:
                    calls[name]()
                    seconds[name].append(_seconds(calls[name], count))
            flops = {name: block_flops(config, batch, length) for name, config in configs.items()}
            yield {"length": length, "batch": batch, "flops": flops, "seconds": seconds}


def _call(config: ModelConfig, batch: int, length: int) -> Callable[[], None]:
    """One forward pass of weights and words drawn at random, compiled and once run."""
    f, shapes = block(config, batch, length)
    keys = iter(jax.random.split(jax.random.key(0), 1 + len(jax.tree.leaves(shapes))))
    params = jax.tree.map(lambda leaf: 0.02 * jax.random.normal(next(keys), leaf.shape), shapes)
    x_BxLxD = jax.random.normal(next(keys), (batch, length, config.width))
    compiled = jit_forward(f)

    def call() -> None:
        jax.block_until_ready(compiled(params, x_BxLxD))

    call()
    return call


def _seconds(call: Callable[[], None], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count


def block_table(size: str, facts: Sequence[dict[str, Any]]) -> Table:
    """A line for each length and batch."""
    attention, mixed = BLOCKS
    rows = []
    for one in facts:
        flops, seconds = one["flops"], one["seconds"]
        rows.append(
            (
                str(one["length"]),
                str(one["batch"]),
                *(figure(flops[name] / 1e9) for name in BLOCKS),
                f"{flops[attention] / flops[mixed]:.2f} x",
                *(figure(1e3 * median(seconds[name])) for name in BLOCKS),
                ratios(seconds[attention], seconds[mixed]),
            )
        )
    config, rounds = block_config(mixed, size), len(facts[0]["seconds"][mixed])
    caption = (
        f"A mixing block with its projections, forward, without feed-forward, {config.width} wide: {config.heads} "
        f"attention heads, or {config.attention_heads} beside as many of span-dynamic convolution, windows of "
        f"{config.convolution.width}. float32, {threads()} threads, jax {jax.__version__} on "
        f"{jax.devices()[0].device_kind}. Operations are counted (GFLOP), times measured (ms): median of {rounds} "
        "rounds, in each of which the blocks take turns. Ratio: attention over mixed within a round, median (least to "
        "most)."
    )
    columns = (
        "length", "batch", *(f"GFLOP {name}" for name in BLOCKS), "ratio", *(f"ms {name}" for name in BLOCKS),
        "attention / mixed",
    )  # fmt: skip
    return Table(caption, columns, rows, numbers=columns)
