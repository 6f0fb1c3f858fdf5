"""Scores of `squad`, `sts` and `wic`, as workdirs have them: one table each, the runs beside each other."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from posenc_jax.errors import UserError
from posenc_jax.evaluation.runs import Run
from posenc_jax.evaluation.similarity import sts, wic
from posenc_jax.evaluation.squad.records import FOLDER, SCORES_FILE, read_records, squad_table
from posenc_jax.evaluation.tables import NOTHING, Table

Record = dict[str, Any]


def task_tables(runs: Sequence[Run]) -> list[Table]:
    """Those of the three tasks of which any run has a score."""
    return [table for make in (squad_scores, sts_scores, wic_scores) if (table := make(runs))]


def squad_scores(runs: Sequence[Run]) -> Table | None:
    """A line a fine-tuning of `squad`; None where no run has any, as of the other two."""
    found = [(run.name, squad_table([record])) for run in runs for record in read_records(run.workdir / FOLDER)]
    if not found:
        return None
    columns = list(dict.fromkeys(name for _, one in found for name in one.columns))
    rows = []
    for name, one in found:
        line = dict(zip(one.columns, one.rows[0], strict=True))
        rows.append((name, *(line.get(column, NOTHING) for column in columns)))
    first = found[0][1]
    return Table(first.caption, ("run", *columns), rows, first.numbers)


def sts_scores(runs: Sequence[Run]) -> Table | None:
    """A line a run, split, set and variant of the vectors: the last layer, and the best one."""
    found = records(runs, "sts", sts.tables)
    rows = []
    for name, record in found:
        inside = "in" if record["specials"] else "out"
        for vectors, sets in _variants(record, record["sets"]).items():
            for one in sets:
                values = one["mean"]["spearman"]
                best = max(range(len(values)), key=values.__getitem__)
                scores = (f"{values[-1]:.2f}", f"{values[best]:.2f}", record["layers"][best])
                what = (one["set"], record["split"], inside, vectors, f"{one['all']['pairs']:,}")
                rows.append((name, record["encoder"], *what, *scores))
    if not rows:
        return None
    return Table(
        "Spearman x 100 of cosine and people's score, no training; a set of several sub-sets: their mean, as SentEval. "
        "Last: the last layer that was scored. Best: the best layer on these very scores, which flatters. "
        "[CLS], [SEP]: in or out of the mean. One encoder a line, no seeds. Chance is 0.",
        ("run", "encoder", "set", "split", "[CLS], [SEP]", "vectors", "pairs", "last", "best", "best layer"),
        list(dict.fromkeys(rows)),
        ("pairs", "last", "best", "best layer"),
    )


def wic_scores(runs: Sequence[Run]) -> Table | None:
    """A line a run, rule of choosing and variant of the vectors; a column a split."""
    found = records(runs, "wic", wic.tables)
    splits = list(dict.fromkeys(split for _, record in found for split in record["pairs"]))
    rows = []
    for name, record in found:
        for vectors, choices in _variants(record, record).items():
            for rule in wic.RULES:
                best = choices[rule]["best"]
                chosen = (record["split"], record["layers"][best["layer"]], f"{best['threshold']:.3g}")
                cells = [_share(best, split) if split in record["pairs"] else NOTHING for split in splits]
                rows.append((name, record["encoder"], rule, vectors, *chosen, *cells))
        always = [f"{record['always same'][split]:.1f}" if split in record["pairs"] else NOTHING for split in splits]
        rows.append((name, record["encoder"], "always the same sense", *[NOTHING] * 4, *always))
    if not rows:
        return None
    rules = "; ".join(f"{rule}: {what}" for rule, what in wic.RULES.items())
    pairs = ", ".join(f"{split} {count:,}" for split, count in found[0][1]["pairs"].items())
    return Table(
        f"Accuracy in % and binomial standard error ({pairs} pairs), no training; layer and threshold were chosen on "
        f"the split named, so that its own number flatters. Rules: {rules}.",
        ("run", "encoder", "rule", "vectors", "chosen on", "layer", "threshold", *splits),
        list(dict.fromkeys(rows)),
        ("layer", "threshold", *splits),
    )


def _variants(record: Record, scored: Any) -> dict[str, Any]:
    """Scores by what was done to the vectors; a record of changed ones has those of both."""
    if "change" not in record:
        return {"as they are": scored}
    return {"as they are": record["plain"], record["change"]["name"]: scored}


def _share(best: Record, split: str) -> str:
    return f"{best['accuracy'][split]:.1f} ± {best['standard error'][split]:.1f}"


def records(runs: Sequence[Run], command: str, tables: Callable[[Record], list[Table]]) -> list[tuple[str, Record]]:
    """Run's name and record, of all that stand in WORKDIR/COMMAND/scores.json.

    Raises `UserError` for a file with one that `tables` cannot show.
    """
    return [(run.name, record) for run in runs for record in _records(run, command, tables)]


def _records(run: Run, command: str, tables: Callable[[Record], list[Table]]) -> list[Record]:
    path = run.workdir / command / SCORES_FILE
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text("utf-8"))
        for record in found:
            tables(record), record["encoder"], record["notes"]
        return found
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged ({type(error).__name__}: {error}); move it away and run `{command}` again"
        ) from error
