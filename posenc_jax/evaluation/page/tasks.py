"""What `squad`, `sts` and `wic` left in workdirs: the runs beside each other, then every table of each."""

from collections.abc import Callable, Sequence

from posenc_jax.evaluation.page.html import Html, absent, folded, join, listing, table
from posenc_jax.evaluation.runs import Run
from posenc_jax.evaluation.similarity import sts, wic
from posenc_jax.evaluation.tables import Table
from posenc_jax.evaluation.task_tables import Record, records, squad_scores, sts_scores, wic_scores


def squad_part(runs: Sequence[Run]) -> Html:
    """One table, a line a fine-tuning."""
    scores = squad_scores(runs)
    return table("Fine-tunings", scores) if scores else nothing("squad", runs)


def sts_part(runs: Sequence[Run]) -> Html:
    return _similarity("sts", sts.HEADING, runs, sts_scores(runs), sts.tables)


def wic_part(runs: Sequence[Run]) -> Html:
    return _similarity("wic", wic.HEADING, runs, wic_scores(runs), wic.tables)


def nothing(command: str, runs: Sequence[Run]) -> Html:
    """Which command would fill the place."""
    return absent(f"No run here has scores of `{command}` yet; `python -m posenc_jax {command} --help` says how.")


def _similarity(
    command: str, heading: str, runs: Sequence[Run], scores: Table | None, tables: Callable[[Record], list[Table]]
) -> Html:
    if not scores:
        return nothing(command, runs)
    details = []
    for name, record in records(runs, command, tables):
        parts = [table(f"{heading}: {name}", one) for one in tables(record)]
        details.append(folded(f"{name}, {record['encoder']}: every layer", *parts, listing(record["notes"])))
    return join([table(heading, scores), *details])
