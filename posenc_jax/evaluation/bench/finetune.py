"""Fine-tuning on texts as short as they come: our length classes against padding as transformers' run_glue does it."""

import dataclasses
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.data.task_files import load_split
from posenc_jax.data.tasks import TASKS, Examples, find_task
from posenc_jax.data.tokenizer import Specials
from posenc_jax.evaluation.bench.peers import transformers_finetuning
from posenc_jax.evaluation.bench.prepare import word_piece_tokenizer
from posenc_jax.evaluation.bench.ratio import OURS, ratio_table
from posenc_jax.evaluation.bench.turns import Run, take_turns, threads
from posenc_jax.evaluation.bench.workloads import Finetuning, padded_batches, typical
from posenc_jax.evaluation.glue.batches import Batch, make_buckets, training_batches
from posenc_jax.evaluation.tables import Table

DYNAMIC = "transformers, padded to a batch's longest"


def bench_finetune(work: Finetuning, source: str, rounds: int) -> tuple[Table, dict[str, Any]]:
    """Examples a second of each side, as a table and as facts. `source` says where the lengths come from. torch and
    transformers must be installed; raises `UserError` with a side's own words when it fails."""
    padded = f"transformers, padded to {work.limit} as run_glue does"
    steps = {OURS: 10, padded: 1, DYNAMIC: 5}  # of a turn: about equally long each
    batches = {
        OURS: our_batches(work, steps[OURS]),
        padded: padded_batches(work, True, steps[padded]),
        DYNAMIC: padded_batches(work, False, steps[DYNAMIC]),
    }
    makers = {OURS: our_finetuning, padded: transformers_finetuning, DYNAMIC: transformers_finetuning}
    sides = {side: (make, (work, batches[side])) for side, make in makers.items()}
    seconds, devices = take_turns(sides, rounds, steps, lambda turn, took: print(f"{turn}  {took:.1f} s", flush=True))
    shares = {side: share_of_words(batches[side]) for side in sides}
    speeds = {side: [examples(batches[side]) / one for one in times] for side, times in seconds.items()}
    model = work.model
    caption = (
        f"A step of fine-tuning (forward, backward, clipping, AdamW), BERT of {model.layers} layers x {model.width} "
        f"with a classifier, {work.batch_size} rows, float32, dropout 0.1, {threads()} threads, "
        f"{'; '.join(dict.fromkeys(devices.values()))}. {len(work.lengths):,} texts of {np.mean(work.lengths):.1f} "
        f"slots on average: {source}. A turn takes {', '.join(map(str, steps.values()))} steps, evenly spaced among an "
        "epoch's in the order of their length, after one that is not counted. Words: slots that hold one, of those "
        "computed."
    )
    table = ratio_table(caption, "examples/s", speeds)
    columns = (*table.columns, "words")
    rows = [(*row, f"{shares[row[0]]:.0%}") for row in table.rows]
    table = dataclasses.replace(table, columns=columns, rows=rows, numbers=columns[1:])
    facts = {
        side: {"examples_per_second": speeds[side], "share_of_words": shares[side], "steps": steps[side]}
        for side in sides
    }
    return table, {"model": work.size, "batch_size": work.batch_size, "lengths": source, "sides": facts}


def task_lengths(data: Path, task: str, vocab_size: int, vocab: Path | None) -> tuple[tuple[int, ...], str]:
    """Slots of each training text or pair of a task in WordPiece, and where they come from. Without a vocabulary file
    one of `vocab_size` is trained on these texts. Raises `UserError` for missing or bad files."""
    split = load_split(data, find_task(task), "train")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = word_piece_tokenizer([*split.texts_a, *(split.texts_b or ())], Path(folder), vocab_size, vocab)
        encoded = tokenizer(split.texts_a, split.texts_b)
    pieces = f"pieces of {vocab}" if vocab else f"pieces of a vocabulary of {vocab_size:,} trained on them"
    return tuple(map(len, encoded["input_ids"])), f"{task}'s train split in {pieces}"


def our_batches(work: Finetuning, steps: int) -> list[Batch]:
    """`steps` (`typical`) of the batches that `glue` makes for an epoch."""
    buckets = make_buckets(_examples(work), Tokenized(), work.limit, types=True)
    epoch = list(training_batches(buckets, work.batch_size, 1, 0))
    return [epoch[place] for place in typical([batch["tokens"].shape[1] for batch in epoch], steps)]


def our_finetuning(work: Finetuning, batches: Sequence[Batch]) -> tuple[Run, str]:
    """The step that `glue` takes, on one device, going round the batches."""
    import jax

    from posenc_jax.config import MeshConfig
    from posenc_jax.evaluation.glue.finetune import Task, make_bench
    from posenc_jax.evaluation.glue.protocols import PROTOCOLS, override
    from posenc_jax.interop.pretrained import Pretrained
    from posenc_jax.parallel.mesh import make_mesh, put_batch
    from posenc_jax.training.state import create_state

    spec, model, texts = TASKS["CoLA"], work.model, _examples(work)
    protocol = override(PROTOCOLS["default"], batch_size=work.batch_size)
    settings = protocol.settings(spec, model, work.limit, len(texts))
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    pretrained = Pretrained(Path(), model, Tokenized(), work.limit)
    bench = make_bench(Task(spec, texts, {}, {}, ""), settings, pretrained, mesh)
    state = create_state(bench.objective, bench.optimizer, mesh, 0)

    def run(steps: int) -> None:
        nonlocal state
        for batch in itertools.islice(endless, steps):
            state, metrics = bench.train_step(state, put_batch(batch, mesh))
        jax.block_until_ready((state, metrics))

    shapes = {batch["tokens"].shape: batch for batch in batches}
    endless = itertools.cycle(shapes.values())
    run(len(shapes))  # compiles them
    endless = itertools.cycle(batches)
    return run, f"jax {jax.__version__} on {jax.devices()[0].device_kind}"


def _examples(work: Finetuning) -> Examples:
    return Examples(work.texts(), None, work.labels())


class Tokenized:
    """In place of a tokenizer, for texts that are ids already."""

    pad, unk, cls, sep, mask = Specials()

    def encode_batch(self, texts: list[list[int]]) -> list[list[int]]:
        return texts


def examples(batches: Sequence[Batch]) -> int:
    """Texts that some batches hold; rows that fill one up are none."""
    return int(sum(batch["weight"].sum() for batch in batches))


def share_of_words(batches: Sequence[Batch]) -> float:
    """Of all slots that are computed, those of texts' words."""
    words = sum((batch["segments"].sum(1) * batch["weight"]).sum() for batch in batches)
    return float(words / sum(batch["segments"].size for batch in batches))
