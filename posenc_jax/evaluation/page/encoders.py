"""What the encoders of the runs made of positions, and how their states lie: one encoder in memory at a time."""

import sys
from collections.abc import Callable, Sequence

from posenc_jax.analysis.patterns import RULE
from posenc_jax.errors import UserError
from posenc_jax.evaluation.page.html import Html, absent, element, join, table
from posenc_jax.evaluation.page.parts import attempt
from posenc_jax.evaluation.page.positions import positions_part
from posenc_jax.evaluation.page.states import states_part
from posenc_jax.evaluation.page.texts import Texts, texts_for
from posenc_jax.evaluation.runs import Run
from posenc_jax.evaluation.tables import Table
from posenc_jax.interop.pretrained import FrozenEncoder, load_encoder

Row = tuple[str, ...]
Part = Callable[[FrozenEncoder, Texts], tuple[Html, list[Row]]]
"""What is shown of an encoder, and its lines in the table that sets the runs beside each other."""

PARTS: dict[str, Part] = {"Positions": positions_part, "States": states_part}
LEADS = {
    "Positions": "What a scheme adds to the logits of a head, query by key, in the newest checkpoint. A head's pattern "
    f"is that of attention by position alone. {RULE[0].upper()}{RULE[1:]} (our rule, after Ke et al. 2021, figure 6).",
    "States": "The vectors of words in sentences, in every layer of the newest checkpoint; layer 0 is the embedding "
    "output. Outliers: dimensions that are the smallest or the largest in half of the tokens, or whose mean lies 6 "
    "robust deviations from the median dimension (our rule, after Luo et al. 2021); persistent ones are so, on one "
    "side, in at least half of the layers. Anisotropy: mean cosine of words of different sentences. Self-similarity: "
    "mean cosine of a word's occurrences; adjusted: less the anisotropy of the same vectors.",
}
TABLES = {
    "Positions": Table("Heads of each pattern.", ("run", "map", "heads"), ()),
    "States": Table(
        "Of the last layer, one checkpoint a line; ± is the standard error over pairs of words. Clipped: with the "
        "persistent outliers set to 0. Samples: below.",
        ("run", "vectors", "anisotropy", "adjusted self-similarity", "persistent outliers"),
        (),
        ("anisotropy", "adjusted self-similarity"),
    ),
}


def encoder_sections(runs: Sequence[Run], text: str | None = None) -> dict[str, Html]:
    """A section for each of `PARTS`, in it every run; `text` as in `texts_for`.

    Raises `UserError` for a `text` that was asked for and cannot be read.
    """
    given = texts_for(runs[0], text) if text is not None else None
    rows: dict[str, list[Row]] = {name: [] for name in PARTS}
    shown = [_of_run(run, given, rows) for run in runs]
    return {
        name: join(
            [
                element("p", LEADS[name]),
                _beside(name, rows[name], runs),
                element("div", *(one[name] for one in shown), class_="columns" if name == "Positions" else None),
            ]
        )
        for name in PARTS
    }


def _beside(name: str, rows: Sequence[Row], runs: Sequence[Run]) -> Html:
    if len(runs) < 2 or not rows:
        return Html("")
    return table(f"{name} side by side", Table(TABLES[name].caption, TABLES[name].columns, rows, TABLES[name].numbers))


def _of_run(run: Run, given: Texts | None, rows: dict[str, list[Row]]) -> dict[str, Html]:
    head = element("h3", run.name)
    try:
        frozen = load_encoder(run.workdir)
        texts = given or texts_for(run)
    except UserError as error:
        print(f"warning: the encoder of {run.name} cannot be shown: {error}", file=sys.stderr)
        sentence = absent(f"The encoder of {run.name} cannot be shown: {error}.")
        return {name: element("div", head, sentence) for name in PARTS}

    def make(name: str) -> Html:
        content, lines = PARTS[name](frozen, texts)
        rows[name] += [(run.name, *line) for line in lines]
        return content

    return {name: element("div", head, attempt(f"{name} of {run.name}", make, name)) for name in PARTS}
