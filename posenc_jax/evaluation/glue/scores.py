"""The scores of a workdir: one file a job, `glue/records/ID.json`, and what it answered on the test splits.

A record holds "id", what tells the job from others ("task", "protocol", "settings", "start", "data", "learning_rate",
"seed"), and what came of it: "score", "metrics", "columns", "steps", "seconds", "notes"; or "failed", the reason.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.data.rows import write_whole
from posenc_jax.data.tasks import TASKS
from posenc_jax.errors import UserError

FOLDER = Path("glue")
RECORDS, PREDICTIONS = FOLDER / "records", FOLDER / "predictions"

Record = dict[str, Any]

_RUN = {
    "id": str, "task": str, "protocol": str, "start": str, "learning_rate": float, "seed": int, "rates": list,
    "settings": {"protocol": str, "metrics": list},
}  # fmt: skip
_DONE = {
    "data": str, "score": float, "columns": dict, "seconds": float, "notes": list, "answered": dict,
    "training_rows": int,
}  # fmt: skip
_COLUMN = {"score": float, "metrics": dict, "majority": float, "rows": int}
"""What is read of a record, and of each of its columns; what is not written so would fail far from the file."""


def read_scores(workdir: str | Path) -> list[Record]:
    """All records of a workdir, by task, protocol, start, rate and seed; none where nothing was scored.

    Raises `UserError` for a damaged file.
    """
    records = [_read(path) for path in (Path(workdir) / RECORDS).glob("*.json")]
    order = {name: place for place, name in enumerate(TASKS)}
    return sorted(
        records,
        key=lambda record: (
            order.get(record["task"], len(order)),
            *(str(record[key]) for key in ("task", "protocol", "start")),
            *(record[key] for key in ("learning_rate", "seed", "id")),
        ),
    )


def _read(path: Path) -> Record:
    try:
        record = json.loads(path.read_text("utf-8"))
        _check(record, _RUN)
        if "failed" not in record:
            _check(record, _DONE)
            for column in record["columns"].values():
                _check(column, _COLUMN)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); delete that file and run `glue` again") from error
    return record


def _check(record: Any, shape: Mapping[str, Any]) -> None:
    """Raises `ValueError` where a key of `shape` is missing, or its value is of another type."""
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__} stands where an object belongs")
    for name, kind in shape.items():
        if name not in record:
            raise ValueError(f"it has no {name!r}")
        if isinstance(kind, Mapping):
            _check(record[name], kind)
        elif not isinstance(record[name], (int, float) if kind is float else kind):
            raise ValueError(f"{name!r} is {record[name]!r}, not of type {kind.__name__}")


def write_record(workdir: Path, record: Record) -> None:
    """Writes a record whole or not at all, in place of an earlier one of the same id."""
    folder = workdir / RECORDS
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{record['id']}.json", json.dumps(record, indent=1) + "\n")


def write_predictions(workdir: Path, job: str, answers: Mapping[str, np.ndarray]) -> None:
    """Writes one float32 array [N] a test split: classes by `TaskSpec.labels`, or scores in the file's scale."""
    folder = workdir / PREDICTIONS
    folder.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    np.savez(file, **answers)
    write_whole(folder / f"{job}.npz", file.getvalue())
