"""The page as a whole: its sections in order, what stands above and below them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import posenc_jax
from posenc_jax.config import config_to_dict
from posenc_jax.data.rows import write_whole
from posenc_jax.evaluation.glue.picture import score_figure
from posenc_jax.evaluation.glue.scores import Record
from posenc_jax.evaluation.glue.summary import summarise
from posenc_jax.evaluation.glue.tables import mean_table, rate_table, score_notes, score_table
from posenc_jax.evaluation.objective_tables import objective_tables
from posenc_jax.evaluation.page.curves import curves
from posenc_jax.evaluation.page.encoders import encoder_sections
from posenc_jax.evaluation.page.html import (
    Html,
    absent,
    code_block,
    element,
    folded,
    join,
    listing,
    prose,
    slug,
    table,
)
from posenc_jax.evaluation.page.parts import attempt
from posenc_jax.evaluation.page.pictures import picture
from posenc_jax.evaluation.page.provenance import commands, differences
from posenc_jax.evaluation.page.style import CSS
from posenc_jax.evaluation.page.tasks import nothing, squad_part, sts_part, wic_part
from posenc_jax.evaluation.report import fine_tunings, training_table
from posenc_jax.evaluation.runs import Run

PAGE_FILE = "report.html"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may fetch for the page: nothing that is not in it."""


def write_page(
    runs: Sequence[Run], out: str | Path, *, encoders: bool = True, text: str | None = None, command: str = ""
) -> Path:
    """Writes OUT/report.html, whole or not at all, and returns its path.

    `encoders` loads each run's newest checkpoint for positions and states; `text` is a source as `prepare` takes, and
    None each run's own held-out rows. `command` is printed at the end as what made the page.
    """
    sections = {
        "Pre-training": _pretraining(runs),
        "Scores": _scores(runs),
        **(encoder_sections(runs, text) if encoders else {}),
        "How the runs were made": _provenance(runs),
    }
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / PAGE_FILE, document(runs, sections, command))
    return out / PAGE_FILE


def document(runs: Sequence[Run], sections: dict[str, Html], command: str = "") -> str:
    """The HTML of a page with these sections."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs side by side"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{title} - posenc_jax"),
        element("style", Html(CSS)),
    )
    names = [element("li", element("a", name, href=f"#{slug(name)}")) for name in sections]
    body = element(
        "body",
        element(
            "header",
            element("h1", title),
            element("p", _lead(runs), class_="lead"),
            element("nav", element("ul", *names), aria_label="Sections"),
        ),
        element("main", *(_section(name, content) for name, content in sections.items())),
        _footer(command),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _section(name: str, content: Html) -> Html:
    return element("section", element("h2", name, id=slug(name)), content, aria_labelledby=slug(name))


def _lead(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return f"An encoder with {runs[0].variant}, in {runs[0].workdir}."
    variants = Counter(run.variant for run in runs)
    return "; ".join(f"{variant} ({count} run{'s' * (count > 1)})" for variant, count in variants.items()) + "."


def _footer(command: str) -> Html:
    words = f"Made by posenc_jax {posenc_jax.__version__}. Nothing on this page is fetched from anywhere."
    return element(
        "footer", element("p", words), code_block(command, "the command that made this page") if command else ""
    )


# ---- sections without weights -------------------------------------------------------------------------------------


def _pretraining(runs: Sequence[Run]) -> Html:
    tables = [table("Runs", training_table(runs))]
    tables += [table("Beside the loss", one) for one in objective_tables(runs)]
    return join([*tables, element("h3", "Learning curves"), attempt("The learning curves", curves, runs)])


def _scores(runs: Sequence[Run]) -> Html:
    parts = {
        "Fine-tuning": _fine_tuning,
        "Question answering": squad_part,
        "Sentence similarity": sts_part,
        "Word in Context": wic_part,
    }
    return join(join([element("h3", name), attempt(name, make, runs)]) for name, make in parts.items())


def _fine_tuning(runs: Sequence[Run]) -> Html:
    records_of = fine_tunings(runs)
    if not records_of:
        return nothing("glue", runs)
    made = {"Scores": score_table, "Averages": mean_table, "Every learning rate": rate_table}
    tables = [table(title, one) for title, make in made.items() if (one := make(records_of))]
    return join([*tables, listing(score_notes(records_of)), attempt("The scores' picture", _score_picture, records_of)])


def _score_picture(records_of: Mapping[str, Sequence[Record]]) -> Html:
    made = score_figure(records_of)
    if made is None:
        return Html("")
    lines = [(name, line) for name, records in records_of.items() for line in summarise(records)]
    said = "; ".join(f"{name}, {line.column}: {100 * line.score:.1f}" for name, line in lines)
    return picture(
        made,
        f"Scores on the dev sets x 100. {said}.",
        "Scores x 100 on the whole dev sets. Wide mark: the score of the table above; points: every run at the "
        "reported rate; dashed: the majority baseline.",
    )


def _provenance(runs: Sequence[Run]) -> Html:
    differing = differences(runs)
    title = "Where they differ" if len(runs) > 1 else "Where they are not the default"
    none = absent("All settings are the same, but for those that change no result.")
    parts = [element("h3", "Settings"), table(title, differing) if differing else none]
    note = (
        "Put together from what the workdirs say, not recorded. A `pretrain` line was checked: it gives the settings "
        "of config.json, but for those that change no result. A `prepare` line repeats rows.json, unchecked; a "
        "tokenizer that was given to it appears by its digest alone."
    )
    parts += [element("h3", "Commands"), element("p", prose(note), class_="note")]
    parts += [join([element("h4", run.name), attempt("The command", _commands, run)]) for run in runs]
    parts.append(element("h3", "Configs"))
    for run in runs:
        whole = json.dumps(config_to_dict(run.config), indent=2)
        parts.append(folded(f"config.json of {run.name}", code_block(whole, f"config of {run.name}")))
    return join(parts)


def _commands(run: Run) -> Html:
    lines = commands(run)
    if not any(" pretrain " in line or " import " in line for line in lines):
        return absent("No shipped config comes to these settings; config.json below has all of them.")
    return code_block("\n".join(lines), f"commands of {run.name}")
