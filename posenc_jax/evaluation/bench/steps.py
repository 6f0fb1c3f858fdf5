"""Training steps, against transformers' and against each other."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from posenc_jax.evaluation.bench.peers import transformers_steps
from posenc_jax.evaluation.bench.ratio import OURS, ratio_table
from posenc_jax.evaluation.bench.turns import Run, take_turns, threads
from posenc_jax.evaluation.bench.workloads import IGNORED, Workload
from posenc_jax.evaluation.tables import Table

COMPARED = (("bert_a", "tupe_a", "tupe_r"), ("dot product", "pairwise"))
"""The first of each against the others."""


def against_transformers(workload: Workload, rounds: int, steps: int) -> Table:
    """Tokens a second of a training step for each side, and their ratios. The packages must be installed.

    Raises `UserError` with a side's own words when it fails.
    """
    sides = {
        OURS: (our_steps, (workload,)),
        "transformers, as shipped": (transformers_steps, (workload, False)),
        "transformers, logits at masked words only": (transformers_steps, (workload, True)),
    }
    return _table(workload, sides, rounds, steps, OURS)


def against_each_other(names: Sequence[str], workload: Workload, rounds: int, steps: int) -> Table:
    """As `against_transformers`, the first of some `VARIANTS` against the others (`COMPARED`)."""
    sides = {name: (our_steps, (dataclasses.replace(workload, work=name),)) for name in names}
    return _table(dataclasses.replace(workload, work=names[0]), sides, rounds, steps, names[0])


def _table(workload: Workload, sides: dict[str, Any], rounds: int, steps: int, reference: str) -> Table:
    def say(turn: str, seconds: float) -> None:
        print(f"{turn}  {steps * workload.tokens / seconds:,.0f} tokens/s", flush=True)

    seconds, devices = take_turns(sides, rounds, steps, say)
    config = workload.config
    model, masked = config.model, np.mean([(labels != IGNORED).sum() for _, labels in workload.masked_batches()])
    what = "replaced-token detection" if config.objective == "rtd" else "masked language modelling"
    caption = (
        f"A training step of {what} (forward, backward, clipping, AdamW), {workload.work}, {model.layers} layers x "
        f"{model.width}, {model.heads} heads, {model.vocab_size:,} words, {workload.batch_size} rows x "
        f"{workload.length}, {masked:.0f} words masked, float32, dropout 0.1, {threads()} threads, "
        f"{'; '.join(dict.fromkeys(devices.values()))}. {steps} steps a turn, after one that is not counted."
    )
    speeds = {side: [steps * workload.tokens / one for one in times] for side, times in seconds.items()}
    return ratio_table(caption, "tokens/s", speeds, reference)


def our_steps(workload: Workload) -> tuple[Run, str]:
    """The step that `pretrain` takes, on one device."""
    import jax

    from posenc_jax.config import MeshConfig, OptimizerConfig
    from posenc_jax.objectives.pretraining import make_objective
    from posenc_jax.parallel.mesh import make_mesh, put_batch
    from posenc_jax.training.optimizer import make_optimizer
    from posenc_jax.training.state import create_state
    from posenc_jax.training.step import make_train_step

    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    objective = make_objective(workload.config)
    optimizer = make_optimizer(OptimizerConfig(schedule="constant"), 1, 0)
    state, step = create_state(objective, optimizer, mesh, 0), make_train_step(objective, optimizer, mesh)
    rows_B = np.arange(workload.batch_size, dtype=np.int32)
    endless = itertools.cycle(
        put_batch({"tokens": words, "segments": np.ones_like(words), "row": rows_B}, mesh) for words in workload.words()
    )

    def run(steps: int) -> None:
        nonlocal state
        for batch in itertools.islice(endless, steps):
            state, metrics = step(state, batch)
        jax.block_until_ready((state, metrics))

    return run, f"jax {jax.__version__} on {jax.devices()[0].device_kind}"
