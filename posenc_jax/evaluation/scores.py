"""The scores of a workdir: `glue/scores.json`, a list of records, one for each task and seed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc_jax.data.rows import write_whole
from posenc_jax.errors import UserError

SCORES_FILE = Path("glue") / "scores.json"

Record = dict[str, Any]


def read_scores(workdir: str | Path) -> list[Record]:
    """All records of a workdir; none where nothing was scored. Raises `UserError` for a damaged file."""
    path = Path(workdir) / SCORES_FILE
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text("utf-8"))
        if not all(isinstance(record, dict) and "task" in record and "seed" in record for record in records):
            raise ValueError("not a list of records")
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); move it away and run `glue` again") from error
    return records


def write_scores(workdir: Path, records: Sequence[Record]) -> None:
    """Writes all records whole or not at all."""
    path = workdir / SCORES_FILE
    path.parent.mkdir(exist_ok=True)
    write_whole(path, json.dumps(list(records), indent=1) + "\n")
