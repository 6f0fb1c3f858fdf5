"""What `squad`, `sts` and `wic` left in workdirs: the runs beside each other, then every table of each."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from posenc_jax.errors import UserError
from posenc_jax.evaluation.page.html import Html, absent, folded, join, listing, table
from posenc_jax.evaluation.runs import Run
from posenc_jax.evaluation.similarity import sts, wic
from posenc_jax.evaluation.squad.records import FOLDER, SCORES_FILE, read_records, squad_table
from posenc_jax.evaluation.tables import Table

Record = dict[str, Any]


def squad_part(runs: Sequence[Run]) -> Html:
    """One table, a line a fine-tuning."""
    found = [(run.name, squad_table([record])) for run in runs for record in read_records(run.workdir / FOLDER)]
    if not found:
        return nothing("squad", runs)
    columns = list(dict.fromkeys(name for _, one in found for name in one.columns))
    rows = []
    for name, one in found:
        line = dict(zip(one.columns, one.rows[0], strict=True))
        rows.append((name, *(line.get(column, "-") for column in columns)))
    first = found[0][1]
    return table("Fine-tunings", Table(first.caption, ("run", *columns), rows, first.numbers))


def sts_part(runs: Sequence[Run]) -> Html:
    return _similarity("sts", sts.HEADING, runs, sts.tables, _sts_summary)


def wic_part(runs: Sequence[Run]) -> Html:
    return _similarity("wic", wic.HEADING, runs, wic.tables, _wic_summary)


def nothing(command: str, runs: Sequence[Run]) -> Html:
    """Which command would fill the place."""
    return absent(f"No run here has scores of `{command}` yet; `python -m posenc_jax {command} --help` says how.")


def _similarity(
    command: str,
    heading: str,
    runs: Sequence[Run],
    tables: Callable[[Record], list[Table]],
    summary: Callable[[Sequence[tuple[str, Record]]], Table],
) -> Html:
    found = [(run.name, record) for run in runs for record in records(run, command, tables)]
    if not found:
        return nothing(command, runs)
    details = []
    for name, record in found:
        parts = [table(f"{heading}: {name}", one) for one in tables(record)]
        details.append(folded(f"{name}, {record['encoder']}: every layer", *parts, listing(record["notes"])))
    return join([table(heading, summary(found)), *details])


def records(run: Run, command: str, tables: Callable[[Record], list[Table]]) -> list[Record]:
    """Those of WORKDIR/COMMAND/scores.json that `tables` can show. Raises `UserError` where it cannot."""
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


def _sts_summary(found: Sequence[tuple[str, Record]]) -> Table:
    """A line a run, split, set and variant of the vectors: the last layer, and the best one."""
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
    return Table(
        "Spearman x 100 of cosine and people's score, no training; a set of several sub-sets: their mean, as SentEval. "
        "Last: the last layer that was scored. Best: the best layer on these very scores, which flatters. "
        "[CLS], [SEP]: in or out of the mean. One encoder a line, no seeds. Chance is 0.",
        ("run", "encoder", "set", "split", "[CLS], [SEP]", "vectors", "pairs", "last", "best", "best layer"),
        list(dict.fromkeys(rows)),
        ("pairs", "last", "best", "best layer"),
    )


def _wic_summary(found: Sequence[tuple[str, Record]]) -> Table:
    """A line a run, rule of choosing and variant of the vectors; a column a split."""
    splits = list(dict.fromkeys(split for _, record in found for split in record["pairs"]))
    rows = []
    for name, record in found:
        for vectors, choices in _variants(record, record).items():
            for rule in wic.RULES:
                best = choices[rule]["best"]
                chosen = (record["split"], record["layers"][best["layer"]], f"{best['threshold']:.3g}")
                cells = [_share(best, split) if split in record["pairs"] else "-" for split in splits]
                rows.append((name, record["encoder"], rule, vectors, *chosen, *cells))
        always = [f"{record['always same'][split]:.1f}" if split in record["pairs"] else "-" for split in splits]
        rows.append((name, record["encoder"], "always the same sense", "-", "-", "-", "-", *always))
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
