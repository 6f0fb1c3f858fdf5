"""What a command without training leaves in a workdir: WORKDIR/COMMAND/scores.json and a section of report.md."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from posenc_jax.data.rows import write_whole
from posenc_jax.errors import UserError
from posenc_jax.evaluation.tables import REPORT_FILE, write_sections
from posenc_jax.training.workdir import take_lock

Record = dict[str, Any]


@contextlib.contextmanager
def keeper(
    workdir: Path, command: str, heading: str, identity: Callable[[Record], Any], markdown: Callable[[Record], str]
) -> Iterator[Callable[[Record], None]]:
    """Holds WORKDIR/COMMAND for one process, and gives a function that keeps a record.

    A record of the same `identity` is replaced, others stay; the section HEADING of WORKDIR/report.md shows those of
    the same "encoder". Raises `UserError` when another process is at it, or the file there is damaged.
    """
    path = workdir / command / "scores.json"
    path.parent.mkdir(exist_ok=True)
    refusal = f"another process runs `{command}` in {workdir}; wait for it, its scores would be lost"
    with take_lock(path.parent, refusal):
        records = _read(path, identity, markdown)

        def keep(record: Record) -> None:
            kept = [other for other in records if identity(other) != identity(record)] + [record]
            write_whole(path, json.dumps(kept, indent=1) + "\n")
            same = [markdown(other) for other in kept if other["encoder"] == record["encoder"]]
            write_sections(workdir / REPORT_FILE, {heading: "\n\n".join(same)})

        yield keep


def _read(path: Path, identity: Callable[[Record], Any], markdown: Callable[[Record], str]) -> list[Record]:
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text("utf-8"))
        for record in records:
            identity(record), markdown(record)  # whatever is not as it was written fails in one of them
        return records
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged ({type(error).__name__}: {error}); move it away and run `{path.parent.name}` again"
        ) from error
