"""How long a training step takes to trace and compile, by depth: scanned layers are compiled once."""

import dataclasses
from typing import Any

from posenc_jax.config_files import load_config
from posenc_jax.evaluation.bench.ratio import ratio_table
from posenc_jax.evaluation.bench.turns import Run, take_turns, threads
from posenc_jax.evaluation.bench.workloads import WORKS
from posenc_jax.evaluation.tables import Table

DEPTHS = (24, 12)
"""The first against the other."""
BATCH_SIZE, LENGTH, VOCAB_SIZE = 32, 128, 30_522


def bench_compile(work: str, size: str, rounds: int) -> tuple[Table, dict[str, Any]]:
    """Seconds by depth, as a table and as facts. Nothing is run, so that any size fits into memory."""
    deep, flat = (f"{layers} layers" for layers in DEPTHS)
    sides = {name: (compiled_steps, (work, size, layers)) for name, layers in zip((deep, flat), DEPTHS, strict=True)}
    seconds, devices = take_turns(sides, rounds, 1, lambda turn, took: print(f"{turn}  {took:.1f} s", flush=True))
    model = load_config(f"{WORKS[work]},{size}").model
    caption = (
        f"Tracing and compiling a training step (forward, backward, clipping, AdamW), {work}, layers {model.width} "
        f"wide and scanned, {VOCAB_SIZE:,} words, {BATCH_SIZE} rows x {LENGTH}, {model.dtype}, for the CPU, "
        f"{threads()} threads, {'; '.join(dict.fromkeys(devices.values()))}. One a turn, after one that is not "
        "counted; nothing is cached."
    )
    return ratio_table(caption, "seconds", seconds, deep), {"work": work, "size": size, "seconds": seconds}


def compiled_steps(work: str, size: str, layers: int) -> tuple[Run, str]:
    """The step that `pretrain` takes, compiled anew each time."""
    import jax
    import jax.numpy as jnp

    from posenc_jax.config import MeshConfig
    from posenc_jax.objectives.pretraining import make_objective
    from posenc_jax.parallel.mesh import batch_sharding, make_mesh
    from posenc_jax.training.optimizer import make_optimizer
    from posenc_jax.training.state import abstract_state
    from posenc_jax.training.step import make_train_step

    jax.config.update("jax_enable_compilation_cache", False)
    changes = {"model.layers": layers, "model.vocab_size": VOCAB_SIZE, "model.scan": True}
    config = load_config(f"{WORKS[work]},{size},length={LENGTH}", changes)
    mesh = make_mesh(MeshConfig(), jax.devices("cpu")[:1])
    objective = make_objective(config)
    optimizer = make_optimizer(dataclasses.replace(config.optimizer, schedule="constant"), 1, 0)
    shapes = {"tokens": (BATCH_SIZE, LENGTH), "segments": (BATCH_SIZE, LENGTH), "row": (BATCH_SIZE,)}
    batch = {
        name: jax.ShapeDtypeStruct(shape, jnp.int32, sharding=batch_sharding(mesh)) for name, shape in shapes.items()
    }
    state = abstract_state(objective, optimizer, mesh)

    def run(count: int) -> None:
        for _ in range(count):
            jax.clear_caches()
            make_train_step(objective, optimizer, mesh).lower(state, batch).compile()

    return run, f"jax {jax.__version__}"
