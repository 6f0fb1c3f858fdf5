"""The tasks of a command line, read whole before any training."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from posenc_jax.data.task_files import load_split
from posenc_jax.data.tasks import GLUE_TASKS, Examples, Missing, TaskSpec, column, find_task
from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.glue.finetune import Task

ALL = "all"
"""Of GLUE what is there."""


def load_tasks(data: str | Path, names: Sequence[str], test: bool = False) -> tuple[list[Task], list[str]]:
    """The tasks, and what of "all" is not there. Raises `UsageError` for an unknown name, `UserError` for missing or
    bad files, the former only of tasks that were named."""
    lenient = ALL in names
    if lenient and len(names) > 1:
        raise UsageError(f"tasks {','.join(names)}: {ALL!r} stands alone")
    tasks, skipped = [], []
    for spec in [find_task(name) for name in (GLUE_TASKS if lenient else names)]:
        if not spec.dev_splits:
            raise UsageError(f"{spec.name} has nothing to train on; MNLI's model answers it with --test")
        try:
            task, notes = load_task(data, spec.name, lenient, test)
        except Missing as error:
            if not lenient:
                raise
            skipped.append(f"{spec.name} is left out: {error}")
            continue
        tasks.append(task)
        skipped += notes
    if not tasks:
        raise UserError("; ".join([f"{data} has no task that could be scored", *skipped]))
    return tasks, skipped


def load_task(data: str | Path, name: str, lenient: bool = False, test: bool = False) -> tuple[Task, list[str]]:
    """Reads the splits of a task; with `lenient`, dev splits but the first, and test splits, may be missing, and
    AX always may: sentences say so. Raises `Missing`, and `UserError` for bad files."""
    spec, notes = find_task(name), []

    def read(of: TaskSpec, split: str, optional: bool) -> Examples | None:
        try:
            examples = load_split(data, of, split)
        except Missing as error:
            if not optional:
                raise
            notes.append(f"{column(of, split)} {split} is left out: {error}")
            return None
        notes.extend(examples.notes)
        return examples

    train = read(spec, "train", False)
    dev = {split: read(spec, split, lenient and place > 0) for place, split in enumerate(spec.dev_splits)}
    answers = {split: read(spec, split, lenient) for split in spec.test_splits} if test else {}
    if test and name == "MNLI":
        answers["AX"] = read(find_task("AX"), "AX", True)
    dev, answers = ({split: rows for split, rows in part.items() if rows} for part in (dev, answers))
    digests = [examples.digest() for examples in (train, *dev.values())]
    return Task(spec, train, dev, answers, hashlib.sha256(" ".join(digests).encode()).hexdigest()[:12]), notes
