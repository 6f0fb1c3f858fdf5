"""The SQuAD scores of a workdir, `squad/scores.json`, and their table."""

import json
from collections.abc import Sequence
from pathlib import Path

from posenc_jax.data.rows import write_whole
from posenc_jax.errors import UserError
from posenc_jax.evaluation.glue.scores import Record
from posenc_jax.evaluation.tables import Table

FOLDER = "squad"
SCORES_FILE = "scores.json"
CAPTION = (
    "EM and F1 x 100 by the official definition over the questions given, last state of one fine-tuning (protocol, "
    "head, epochs x rows a step, peak rate, slots of a window, seed). Version 2.0: nothing is answered where the odds "
    "of no answer are above the fixed threshold; the best thresholds were found on these very questions, each for its "
    "own score. Chance: in 1.1 a random run of words as long as a training answer, in 2.0 no answer to any question."
)


def read_records(folder: Path) -> list[Record]:
    """All records; none where nothing was scored. Raises `UserError` for a damaged file."""
    path = folder / SCORES_FILE
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text("utf-8"))
        squad_table(records)  # whoever reads them can show them
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{path} is damaged ({type(error).__name__}: {error}); move it away and run `squad` again"
        ) from error
    return records


def write_records(folder: Path, records: Sequence[Record]) -> None:
    write_whole(folder / SCORES_FILE, json.dumps(list(records), indent=1) + "\n")


def find_record(records: Sequence[Record], identity: Record) -> Record | None:
    """The record that has all of `identity`."""
    wanted = json.loads(json.dumps(identity))
    return next((record for record in records if all(record.get(key) == wanted[key] for key in wanted)), None)


def squad_table(records: Sequence[Record]) -> Table:
    """One line a record, in the order they were made; thresholds where there are any."""
    rows = [_cells(record) for record in records]
    columns = [name for name in rows[0] if any(row[name] != "-" for row in rows)] if rows else []
    return Table(CAPTION, columns, [[row[name] for name in columns] for row in rows], numbers=("EM", "F1", "seconds"))


def _cells(record: Record) -> dict[str, str]:
    cells = {"task": record["task"], "EM": f"{record['exact']:.2f}", "F1": f"{record['f1']:.2f}"}
    cells |= {"threshold": "-", "best EM (threshold)": "-", "best F1 (threshold)": "-"}
    if "threshold" in record:
        cells["threshold"] = f"{record['threshold']:g}"
        for column, name in (("best EM (threshold)", "exact"), ("best F1 (threshold)", "f1")):
            cells[column] = f"{record[f'best_{name}']:.2f} ({record[f'best_{name}_threshold']:.2f})"
    return cells | {
        "chance EM / F1": f"{record['chance_exact']:.2f} / {record['chance_f1']:.2f}",
        "questions": f"{record['rows']}",
        "trained on": f"{record['train_rows']}",
        "start": record["start"],
        "protocol": f"{record['protocol']}, {record['head']} head, {record['epochs']} x {record['batch_size']}, "
        f"lr {record['learning_rate']:g}, length {record['length']}, seed {record['seed']}",
        "seconds": f"{record['seconds']:.0f}",
    }
