"""Fine-tune a workdir's encoder on tasks in the GLUE layout; each (task, seed) is a job that is done once.

A record is written after every job. The same command again skips the jobs whose record is there, so a kill loses at
most the job at work. A record is another's when anything differs that changes a score: encoder, settings or task data.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optax

from posenc_jax.config import MeshConfig
from posenc_jax.data.tasks import Examples, TaskSpec, find_file, find_task, load_split
from posenc_jax.evaluation.batches import make_buckets
from posenc_jax.evaluation.finetune import (
    Job,
    Protocol,
    default_epochs,
    default_learning_rate,
    fine_tune,
    make_objective,
)
from posenc_jax.evaluation.pretrained import Pretrained, load_pretrained, restore_encoder
from posenc_jax.evaluation.report import write_report
from posenc_jax.evaluation.runs import read_runs
from posenc_jax.evaluation.scores import SCORES_FILE, Record, read_scores, write_scores
from posenc_jax.parallel.mesh import check_batch, make_mesh
from posenc_jax.training.state import abstract_state
from posenc_jax.training.trackers import Terminal
from posenc_jax.training.workdir import take_lock

FROM_SCRATCH = "from scratch"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task with both its splits, and a digest of its files."""

    spec: TaskSpec
    train: Examples
    dev: Examples
    data: str


def run_glue(
    workdir: str | Path,
    data: str | Path,
    names: Sequence[str],
    *,
    seeds: int = 1,
    epochs: int | None = None,
    batch_size: int = 32,
    learning_rate: float | None = None,
    from_scratch: bool = False,
) -> list[Record]:
    """Scores the encoder of `workdir` on the tasks `names` under `data`, seeds 0, 1, ... each; returns their records.

    `epochs` and `learning_rate` are by default those of `finetune.default_epochs` and `default_learning_rate`.
    Writes WORKDIR/glue/scores.json after each job and WORKDIR/report.md at the end. `from_scratch` starts from fresh
    weights instead: what pre-training must beat. Raises `UserError` or `UsageError` before any training for whatever
    is wrong with the workdir or the files.
    """
    pretrained = load_pretrained(workdir)
    tasks = [load_task(data, name) for name in names]
    folder = pretrained.workdir / SCORES_FILE.parent
    folder.mkdir(exist_ok=True)
    with take_lock(folder, f"another process is scoring {workdir}; wait for it, its scores would be lost"):
        mine = _score(pretrained, tasks, seeds, epochs, batch_size, learning_rate, from_scratch)
        write_report(read_runs([pretrained.workdir]), pretrained.workdir)
        return mine


def _score(
    pretrained: Pretrained,
    tasks: Sequence[Task],
    seeds: int,
    epochs: int | None,
    batch_size: int,
    learning_rate: float | None,
    from_scratch: bool,
) -> list[Record]:
    records = read_scores(pretrained.workdir)
    mesh = make_mesh(MeshConfig())
    check_batch(batch_size, 1, mesh)
    rate = default_learning_rate(pretrained.model) if learning_rate is None else learning_rate
    encoder, start = None, FROM_SCRATCH
    if not from_scratch:
        target = abstract_state(make_objective(tasks[0].spec, pretrained.model), optax.identity(), mesh).params
        encoder, start = restore_encoder(pretrained.workdir, target["encoder"])
    mine = []
    for task in tasks:
        protocol = Protocol(rate, epochs or default_epochs(len(task.train.labels)), batch_size)
        identity = {"task": task.spec.name, "start": start, **dataclasses.asdict(protocol), "data": task.data}
        job = None
        for seed in range(seeds):
            record = _find(records, {**identity, "seed": seed})
            if record is None:
                job = job or make_job(task, pretrained, protocol, mesh)
                record = {**identity, "seed": seed, **_run(job, encoder, seed)}
                records.append(record)
                write_scores(pretrained.workdir, records)
            mine.append(record)
    return mine


def load_task(data: str | Path, name: str) -> Task:
    """Reads both splits of a task. Raises `UsageError` for an unknown name, `UserError` for missing or bad files."""
    spec = find_task(name)
    digest = hashlib.sha256()
    for split in ("train", "dev"):
        digest.update(find_file(data, spec, split).read_bytes())
    return Task(spec, load_split(data, spec, "train"), load_split(data, spec, "dev"), digest.hexdigest()[:12])


def make_job(task: Task, pretrained: Pretrained, protocol: Protocol, mesh: Any) -> Job:
    """Tokenizes the task once for all its seeds."""
    types = pretrained.model.token_types >= 2
    buckets = [make_buckets(split, pretrained.tokenizer, pretrained.length, types) for split in (task.train, task.dev)]
    return Job(task.spec, protocol, mesh, make_objective(task.spec, pretrained.model), *buckets)


def _run(job: Job, encoder: Any, seed: int) -> Record:
    slots = sum(bucket.tokens_NxL.size for bucket in job.train)
    tokens_per_step = slots * job.protocol.epochs // job.steps
    terminal = Terminal(job.steps, 0, f"{job.task.name} seed {seed}")

    def on_log(step: int, values: dict[str, float]) -> None:
        if "seconds" in values:
            values["tokens_per_second"] = tokens_per_step / values["seconds"]
        terminal.write("train", step, values)

    try:
        result = fine_tune(job, encoder, seed, on_step=terminal.advance, on_log=on_log)
        metric, majority = job.task.metrics[0], result.pop("majority")
        record = {"metric": metric, "split": "dev", **result, "majority": majority[metric], "majorities": majority}
        terminal.say(
            f"{job.task.name} seed {seed}  {metric} {100 * record['score']:.2f} on {record['rows']} dev rows "
            f"(majority {100 * record['majority']:.2f}), {record['seconds']:.0f} s"
        )
        return record
    finally:
        terminal.close()


def _find(records: Sequence[Record], wanted: Record) -> Record | None:
    return next((record for record in records if wanted.items() <= _plain(record).items()), None)


def _plain(record: Record) -> Record:
    return {name: value for name, value in record.items() if isinstance(value, str | int | float)}
