"""Training steps, against transformers' and against each other.

All sides learn from the same words with as many of them masked, at the same places.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from posenc_jax.config import Config
from posenc_jax.config_files import load_config
from posenc_jax.evaluation.bench.ratio import OURS, ratio_table
from posenc_jax.evaluation.bench.turns import Run, take_turns, threads
from posenc_jax.evaluation.tables import Table

IGNORED = -100  # transformers' label of a position that is not predicted
BATCHES = 4  # that the steps go round

WORKS = {
    "bert": "configs/bert.py:bert_a",
    "convbert": "configs/convbert.py:convbert_mlm",
    "electra": "configs/electra.py:electra",
}
"""What transformers has, too: masked words by BERT and by ConvBERT, replaced words by ELECTRA."""
VARIANTS = {
    "bert_a": "configs/tupe.py:bert_a",
    "tupe_a": "configs/tupe.py:tupe_a",
    "tupe_r": "configs/tupe.py:tupe_r",
    "dot product": "configs/symmetric.py:bert",
    "pairwise": "configs/symmetric.py:pairwise",
}
"""Of ours."""
COMPARED = (("bert_a", "tupe_a", "tupe_r"), ("dot product", "pairwise"))
"""The first of each against the others."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """An encoder of one of the shipped sizes, float32, dropout 0.1, AdamW, clipping."""

    work: str = "bert"
    size: str = "small"
    batch_size: int = 32
    length: int = 128
    vocab_size: int = 30_522

    @property
    def config(self) -> Config:
        changes = {
            "model.vocab_size": self.vocab_size, "model.dtype": "float32", "model.scan": False, "model.norm": "post",
            "model.dropout": 0.1, "model.attention_dropout": 0.1,
        }  # fmt: skip
        return load_config(f"{ {**WORKS, **VARIANTS}[self.work] },{self.size},length={self.length}", changes)

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch_size * self.length

    def words(self) -> list[np.ndarray]:
        """int32 [batch_size, length] ordinary words, `BATCHES` times."""
        draw = np.random.default_rng(0).integers
        return [draw(5, self.vocab_size, (self.batch_size, self.length), np.int32) for _ in range(BATCHES)]

    def masked_batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(tokens, labels) int32 [B, L] as transformers wants them, masked by the rule our own step masks with."""
        import jax

        from posenc_jax.data.masking import mask_tokens

        batches, rule = [], self.config.mlm
        row_B = np.arange(self.batch_size, dtype=np.int32)
        for number, words_BxL in enumerate(self.words()):
            masked = jax.device_get(mask_tokens(jax.random.key(number), words_BxL, row_B, self.vocab_size, rule))
            labels_BxL = np.full_like(words_BxL, IGNORED)
            chosen_BxM = np.where(masked["predicted_weight"] > 0, masked["target"], IGNORED)
            np.put_along_axis(labels_BxL, masked["predicted"], chosen_BxM, axis=1)
            batches.append((masked["tokens"], labels_BxL))
        return batches


def against_transformers(workload: Workload, rounds: int, steps: int) -> Table:
    """Tokens a second of a training step for each side, and their ratios. The packages must be installed.

    Raises `UserError` with a side's own words when it fails.
    """
    from posenc_jax.evaluation.bench.peers import transformers_steps

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
        f"{'; '.join(dict.fromkeys(devices.values()))}. {steps} steps a turn, first ones left out."
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
