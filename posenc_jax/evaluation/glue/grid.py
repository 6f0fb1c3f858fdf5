"""Fine-tune a workdir's encoder on tasks in the GLUE layout: a grid of (task, learning rate, seed), each run once.

A record is written after every run. The same command again skips the runs whose record is there, so a kill loses at
most the runs at work. A record is another's when anything differs that changes a score: encoder, settings or data.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optax

from posenc_jax.config import MeshConfig
from posenc_jax.data.rows import write_whole
from posenc_jax.errors import UserError
from posenc_jax.evaluation.glue.finetune import Bench, Task, fine_tune, make_bench
from posenc_jax.evaluation.glue.jobs import Job, open_runner
from posenc_jax.evaluation.glue.progress import JobProgress
from posenc_jax.evaluation.glue.protocols import PROTOCOLS, Protocol, Settings, override
from posenc_jax.evaluation.glue.scores import (
    FOLDER,
    PREDICTIONS,
    Record,
    read_scores,
    write_predictions,
    write_record,
)  # fmt: skip
from posenc_jax.evaluation.glue.summary import mean_lines, summarise
from posenc_jax.evaluation.glue.task_data import ALL, load_task, load_tasks
from posenc_jax.evaluation.report import write_report
from posenc_jax.evaluation.runs import read_runs
from posenc_jax.interop.pretrained import Pretrained, load_pretrained, restore_encoder
from posenc_jax.objectives.supervised import Supervised
from posenc_jax.parallel.mesh import check_batch, make_mesh
from posenc_jax.training.state import abstract_state
from posenc_jax.training.workdir import take_lock

FROM_SCRATCH = "from scratch"
TABLE_FILE = FOLDER / "table.json"


@dataclasses.dataclass(frozen=True)
class Outcome:
    records: list[Record]
    """Of the runs asked for that finished, by task, rate and seed."""
    failed: list[Record]
    skipped: list[str]
    """What "all" does not hold, a sentence each."""


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
    """Scores the encoder of `workdir` by the protocol "default", with these changes; returns the records.

    As `score_tasks`; raises `UserError` too, after all else is done, when a run has failed.
    """
    rates = None if learning_rate is None else [learning_rate]
    protocol = override(PROTOCOLS["default"], seeds=seeds, epochs=epochs, batch_size=batch_size, learning_rates=rates)
    outcome = score_tasks(workdir, data, names, protocol, from_scratch=from_scratch)
    if outcome.failed:
        raise UserError(told(outcome.failed))
    return outcome.records


def told(failed: Sequence[Record]) -> str:
    """One sentence about runs that failed."""
    first = failed[0]
    return (
        f"{len(failed)} of the runs failed, the first of them {first['task']} seed {first['seed']} learning rate "
        f"{first['learning_rate']:g}: {first['failed']}; what is done stays: mend that and run the same line again"
    )


def score_tasks(
    workdir: str | Path,
    data: str | Path,
    names: Sequence[str],
    protocol: Protocol,
    *,
    from_scratch: bool = False,
    processes: int = 1,
    test: bool = False,
) -> Outcome:
    """Scores the encoder of `workdir` on tasks under `data` (a folder, or "tfds") by a protocol.

    `names` are tasks, or "all" of GLUE that is there. `from_scratch` starts from fresh weights instead: what
    pre-training must beat. `processes` share the runs. `test` keeps the answers to the test splits, AX by MNLI's
    model, in WORKDIR/glue/predictions. Writes WORKDIR/glue/records after each run; table.json, the picture and
    WORKDIR/report.md at the end. Raises `UserError` or `UsageError` before any training for whatever is wrong with the
    workdir or the files; a run that fails is in the outcome and is run again by the next call.
    """
    pretrained = load_pretrained(workdir)
    tasks, skipped = load_tasks(data, names, test)
    for line in skipped:
        print(line, flush=True)
    folder = pretrained.workdir / FOLDER
    folder.mkdir(exist_ok=True)
    with take_lock(folder, f"another process is scoring {workdir}; wait for it, its scores would be lost"):
        loaded = {task.spec.name: task for task in tasks}
        if processes == 1:
            open_bench = functools.partial(Benches, pretrained, loaded.__getitem__, protocol.batch_size, from_scratch)
        else:
            settings = (data, ALL in names, test, protocol.batch_size, from_scratch)
            open_bench = functools.partial(_open_elsewhere, pretrained.workdir, *settings)
        done, failed = _work(pretrained, tasks, protocol, open_bench, processes)
        _write_table(pretrained.workdir)
        write_report(read_runs([pretrained.workdir]), pretrained.workdir)
    return Outcome(done, failed, skipped)


# ---- runs ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Run:
    """What a process must know of a job."""

    task: str
    settings: Settings
    learning_rate: float
    seed: int
    known: Record
    """The record as far as it is known beforehand."""


class Benches:
    """What a process keeps between runs: the encoder, and the bench of the task it is at."""

    def __init__(
        self, pretrained: Pretrained, load: Callable[[str], Task], batch_size: int, from_scratch: bool
    ) -> None:
        """`load` gives a task by its name."""
        self._pretrained, self._load = pretrained, load
        self._mesh = make_mesh(MeshConfig())
        check_batch(batch_size, 1, self._mesh, "--batch-size")
        self._encoder, self.start = None, FROM_SCRATCH
        if not from_scratch:
            target = abstract_state(Supervised(pretrained.model, 2), optax.identity(), self._mesh).params
            self._encoder, self.start = restore_encoder(pretrained.workdir, target["encoder"])
        self._at: tuple[str, Settings] | None = None
        self._bench: Bench | None = None

    def run(self, job: Job, on_step: Callable[[float, str], None]) -> Record:
        """Trains and scores one run; its answers to test splits are on the disk when it returns."""
        run: Run = job.details
        if self._at != (run.task, run.settings):
            self._bench = make_bench(self._load(run.task), run.settings, self._pretrained, self._mesh)
            self._at = (run.task, run.settings)
        bench = self._bench
        slots = sum(bucket.tokens_NxL.size for bucket in bench.train) * run.settings.epochs

        def on_log(step: int, values: dict[str, float]) -> None:
            speed = f", {slots / bench.steps / values['seconds']:,.0f} tokens/s" if "seconds" in values else ""
            on_step(step / bench.steps, f"step {step}/{bench.steps}, loss {values['loss']:.3f}{speed}")

        part, answers = fine_tune(
            bench, self._encoder, run.learning_rate, run.seed,
            on_step=lambda step: on_step(step / bench.steps, ""), on_log=on_log,
        )  # fmt: skip
        if answers:
            write_predictions(self._pretrained.workdir, job.id, answers)
        return {**run.known, **part}


def _open_elsewhere(
    workdir: Path, data: str | Path, lenient: bool, test: bool, batch_size: int, from_scratch: bool
) -> Benches:
    """In a process of its own, which reads for itself what it needs."""
    load = functools.partial(load_task, data, lenient=lenient, test=test)
    return Benches(load_pretrained(workdir), lambda name: load(name)[0], batch_size, from_scratch)


def _work(
    pretrained: Pretrained, tasks: Sequence[Task], protocol: Protocol, open_bench: Callable, processes: int
) -> tuple[list[Record], list[Record]]:
    """Does what of the grid has no record yet; returns the records of all of it that finished, and that failed."""
    known = {record["id"]: record for record in read_scores(pretrained.workdir)}
    with open_runner(open_bench, processes) as runner:
        grid = _grid(pretrained, tasks, protocol, runner.start)
        todo = [job for job in grid if not _is_done(known.get(job.id), job, pretrained.workdir)]
        progress = JobProgress(todo, len(grid) - len(todo))

        def tell(event: str, job: Job, value: Any) -> None:
            if event == "begin":
                progress.begin(job)
            elif event == "step":
                progress.step(job, *value)
            elif event == "again":
                progress.again(job, value)
            else:
                record = value if event == "done" else {**job.details.known, "failed": value}
                write_record(pretrained.workdir, record)
                known[job.id] = record
                progress.end(job, _line(record), failed=event == "failed")

        try:
            runner.run(todo, tell)
        except KeyboardInterrupt:
            done = len(grid) - len(todo) + progress.done
            progress.say(f"stopped: {done} of {len(grid)} runs are done and stay; the same line again does the rest")
            raise
        finally:
            progress.close()
    records = [known[job.id] for job in grid]
    return [r for r in records if "failed" not in r], [r for r in records if "failed" in r]


def _grid(pretrained: Pretrained, tasks: Sequence[Task], protocol: Protocol, start: str) -> list[Job]:
    model = pretrained.model
    model_digest = _digest(dataclasses.asdict(model))
    jobs = []
    for task in tasks:
        rows = len(task.train)
        letters = sum(map(len, task.train.texts_a)) + sum(map(len, task.train.texts_b or ()))
        settings = protocol.settings(task.spec, model, pretrained.length, rows)
        rates = protocol.rates(model)
        answered = {split: examples.digest() for split, examples in task.test.items()}
        for rate in rates:
            for seed in protocol.seeds:
                identity = {
                    "task": task.spec.name, "protocol": protocol.name, "settings": settings.as_json(), "start": start,
                    "model": model_digest, "data": task.data, "learning_rate": rate, "seed": seed,
                }  # fmt: skip
                name = f"{task.spec.name}-{protocol.name}-{rate:g}-seed{seed}-{_digest(identity)}"
                rest = {"split": "dev", "rates": list(rates), "answered": answered, "training_rows": rows}
                where = f"learning rate {rate:g}, seed {seed}" if len(rates) > 1 else f"seed {seed}"
                jobs.append(
                    Job(
                        id=name,
                        title=f"{task.spec.name} {where}",
                        group=task.spec.name,
                        work=settings.epochs * letters * min(1.0, (settings.most_rows or rows) / rows),
                        details=Run(task.spec.name, settings, rate, seed, {"id": name, **identity, **rest}),
                    )
                )
    return jobs


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def _is_done(record: Record | None, job: Job, workdir: Path) -> bool:
    """Whether there is a score and, where test splits are to be answered, these answers."""
    if record is None or "failed" in record:
        return False
    wanted = job.details.known["answered"]
    answered = (workdir / PREDICTIONS / f"{job.id}.npz").exists() and wanted.items() <= record["answered"].items()
    return not wanted or answered


def _line(record: Record) -> str:
    if "failed" in record:
        return f"failed, not scored: {record['failed']}"
    metric = " and ".join(record["settings"]["metrics"])
    scores = [
        f"{name + ' ' if len(record['columns']) > 1 else ''}{metric} {100 * values['score']:.2f} on {values['rows']} "
        f"dev rows (majority {100 * values['majority']:.2f})"
        for name, values in record["columns"].items()
    ]
    return f"{', '.join(scores)}, {record['seconds']:.0f} s"


def _write_table(workdir: Path) -> None:
    """All scores of a workdir as data: what the tables of the report show."""
    records = read_scores(workdir)
    table = {
        "lines": [line.as_json() for line in summarise(records)],
        "averages": [dataclasses.asdict(mean) for mean in mean_lines(records)],
        "failed": [{name: r[name] for name in ("id", "failed")} for r in records if "failed" in r],
    }
    text, path = json.dumps(table, indent=1) + "\n", workdir / TABLE_FILE
    if not path.exists() or path.read_text("utf-8") != text:
        write_whole(path, text)
