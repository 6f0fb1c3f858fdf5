"""Training steps of masked language modelling, against transformers' BertForMaskedLM.

Each side is a process of its own that idles between its turns, so that no thread pool disturbs another's measurement.
All learn from the same words with as many of them masked, at the same places.
"""

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from posenc_jax.config import MlmConfig, ModelConfig
from posenc_jax.config_files import load_config
from posenc_jax.errors import UserError
from posenc_jax.evaluation.bench.ratio import OURS, ratio_table
from posenc_jax.evaluation.tables import Table

PAUSE_SECONDS = 0.5  # until the threads of the last turn have gone to sleep
IGNORED = -100  # transformers' label of a position that is not predicted
BATCHES = 4  # that the steps go round

Run = Callable[[int], None]
"""Does so many steps and returns when they are done."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """BERT-A of one of the shipped sizes, float32, dropout 0.1, AdamW, clipping."""

    size: str = "small"
    batch_size: int = 32
    length: int = 128
    vocab_size: int = 30_522

    @property
    def model(self) -> ModelConfig:
        changes = {
            "model.vocab_size": self.vocab_size, "model.dtype": "float32", "model.scan": False, "model.norm": "post",
            "model.dropout": 0.1, "model.attention_dropout": 0.1,
        }  # fmt: skip
        return load_config(f"configs/bert.py:bert_a,{self.size},length={self.length}", changes).model

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch_size * self.length

    def words(self) -> list[np.ndarray]:
        """int32 [batch_size, length] ordinary words, `BATCHES` times."""
        draw = np.random.default_rng(0).integers
        return [draw(5, self.vocab_size, (self.batch_size, self.length), np.int32) for _ in range(BATCHES)]


def bench_mlm(workload: Workload, rounds: int, steps: int) -> Table:
    """Tokens a second of a training step for each side, and their ratios. The packages must be installed.

    Raises `UserError` with a side's own words when it fails.
    """
    batches = masked_batches(workload)
    masked = np.mean([(labels != IGNORED).sum() for _, labels in batches])
    sides = {
        OURS: (_ours, None),
        "transformers, as shipped": (_transformers, False),
        "transformers, logits at masked words only": (_transformers, True),
    }
    with _processes(sides, workload, batches) as connections:
        devices = {side: _answer(side, connection) for side, connection in connections.items()}
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(rounds):
            names = list(sides)
            for side in names[number % len(names) :] + names[: number % len(names)]:
                time.sleep(PAUSE_SECONDS)
                connections[side].send(steps)
                seconds[side].append(_answer(side, connections[side]))
                print(
                    f"round {number + 1}: {side}  {steps * workload.tokens / seconds[side][-1]:,.0f} tokens/s",
                    flush=True,
                )
    model = workload.model
    caption = (
        f"A training step of masked language modelling (forward, backward, clipping, AdamW), {model.layers} layers x "
        f"{model.width}, {model.heads} heads, {model.vocab_size:,} words, {workload.batch_size} rows x "
        f"{workload.length}, {masked:.0f} words masked, float32, dropout 0.1, {_threads()} threads, "
        f"{'; '.join(dict.fromkeys(devices.values()))}. {steps} steps a turn, first ones left out."
    )
    speeds = {side: [steps * workload.tokens / one for one in times] for side, times in seconds.items()}
    return ratio_table(caption, "tokens/s", speeds)


def masked_batches(workload: Workload) -> list[tuple[np.ndarray, np.ndarray]]:
    """(tokens, labels) int32 [B, L] as transformers wants them, masked by the rule our own step masks with."""
    import jax

    from posenc_jax.data.masking import mask_tokens

    batches = []
    for number, words_BxL in enumerate(workload.words()):
        row_B = np.arange(len(words_BxL), dtype=np.int32)
        masked = jax.device_get(mask_tokens(jax.random.key(number), words_BxL, row_B, workload.vocab_size, MlmConfig()))
        labels_BxL = np.full_like(words_BxL, IGNORED)
        chosen_BxM = np.where(masked["predicted_weight"] > 0, masked["target"], IGNORED)
        np.put_along_axis(labels_BxL, masked["predicted"], chosen_BxM, axis=1)
        batches.append((masked["tokens"], labels_BxL))
    return batches


# ---- processes that take turns ------------------------------------------------------------------------------------


@contextmanager
def _processes(sides: dict[str, tuple], workload: Workload, batches: list) -> Iterator[dict[str, Connection]]:
    """Starts a process a side, one after the other until each is warm, and ends them."""
    context = get_context("spawn")
    connections, processes = {}, []
    try:
        for side, (make, option) in sides.items():
            connections[side], theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, make, workload, batches, option), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            connections[side].poll(None)
        yield connections
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _serve(connection: Connection, make: Callable, workload: Workload, batches: list, option: Any) -> None:
    try:
        run, device = make(workload, batches, option)
        run(2)
        connection.send(device)
        while True:
            steps = connection.recv()
            began = time.perf_counter()
            run(steps)
            connection.send(time.perf_counter() - began)
    except (EOFError, KeyboardInterrupt):
        return
    except Exception as error:
        connection.send(error if isinstance(error, UserError) else UserError(f"{type(error).__name__}: {error}"))


def _answer(side: str, connection: Connection) -> Any:
    try:
        answer = connection.recv()
    except EOFError:
        raise UserError(f"the process of {side} died, perhaps for want of memory; take a smaller --size") from None
    if isinstance(answer, UserError):
        raise UserError(f"{side} failed: {answer}")
    return answer


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- the sides ----------------------------------------------------------------------------------------------------


def _ours(workload: Workload, batches: list, option: None) -> tuple[Run, str]:
    import jax

    from posenc_jax.config import MeshConfig, OptimizerConfig
    from posenc_jax.objectives.mlm import Mlm
    from posenc_jax.parallel.mesh import make_mesh, put_batch
    from posenc_jax.training.optimizer import make_optimizer
    from posenc_jax.training.state import create_state
    from posenc_jax.training.step import make_train_step

    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    objective, optimizer = Mlm(workload.model), make_optimizer(OptimizerConfig(schedule="constant"), 1, 0)
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


def _transformers(workload: Workload, batches: list, masked_only: bool) -> tuple[Run, str]:
    """Whole rows, so no attention mask is given: the fastest way through their model."""
    import torch
    import transformers

    torch.set_num_threads(_threads())
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ours = workload.model
    config = transformers.BertConfig(
        vocab_size=workload.vocab_size,
        hidden_size=ours.width,
        num_hidden_layers=ours.layers,
        num_attention_heads=ours.heads,
        intermediate_size=ours.feed_forward_width,
        max_position_embeddings=ours.positions.max_length,
        hidden_dropout_prob=ours.dropout,
        attention_probs_dropout_prob=ours.attention_dropout,
        attn_implementation="sdpa",
    )
    model = transformers.BertForMaskedLM(config).to(device).train()
    # Fused, as transformers' own trainer takes it.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)
    endless = itertools.cycle(
        tuple(torch.from_numpy(np.asarray(part, np.int64)).to(device) for part in batch) for batch in batches
    )

    def loss(tokens_BxL: Any, labels_BxL: Any) -> Any:
        if not masked_only:
            return model(input_ids=tokens_BxL, labels=labels_BxL).loss
        is_masked_BxL = labels_BxL != IGNORED
        hidden_BxLxD = model.bert(input_ids=tokens_BxL).last_hidden_state
        logits_NxV = model.cls(hidden_BxLxD[is_masked_BxL])
        return torch.nn.functional.cross_entropy(logits_NxV, labels_BxL[is_masked_BxL])

    def run(steps: int) -> None:
        for batch in itertools.islice(endless, steps):
            optimizer.zero_grad(set_to_none=True)
            loss(*batch).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run, f"transformers {transformers.__version__}, torch {torch.__version__} on {device}"
