"""What an objective says beside its loss: how well replaced words are found, how alike words and heads are."""

from collections.abc import Sequence

from posenc_jax.evaluation.runs import Run
from posenc_jax.evaluation.tables import Table

DETECTION = {
    "generator loss": "mlm_loss", "generator right": "generator_accuracy", "sample right": "sample_accuracy",
    "replaced": "replaced", "detection loss": "rtd_loss", "precision": "precision", "recall": "recall", "AUC": "auc",
}  # fmt: skip
# The form that is the loss is logged under the loss's name alone.
LIKENESS = {
    f"{part}s, {form}": (f"{part}_cosine_{form}", term)
    for part, term in (("token", "tcd_loss"), ("head", "hcd_loss"))
    for form in ("plain", "squared", "centred")
}


def objective_tables(runs: Sequence[Run]) -> list[Table]:
    """A table for each objective that any of the runs has beside masked words, from their last validations."""
    detecting = [run for run in runs if run.config.objective == "rtd" and run.last_validation]
    penalised = [
        run
        for run in runs
        if run.last_validation and (run.config.differentiation.token_weight or run.config.differentiation.head_weight)
    ]
    return [*([_detection(detecting)] if detecting else []), *([_likeness(penalised)] if penalised else [])]


def _detection(runs: Sequence[Run]) -> Table:
    rows = [(run.name, *(_number(run.last_validation.get(key)) for key in DETECTION.values())) for run in runs]
    return Table(
        "Replaced-token detection on the rows of the validation loss. Generator: nats a masked word, share of them "
        "whose likeliest word is right, and whose sampled word is; replaced: share of all words that are not the "
        "original one. Discriminator: nats a word, all words counted; precision and recall of replaced words at a "
        "logit of 0; AUC over all words.",
        ("run", *DETECTION),
        rows,
        numbers=tuple(DETECTION),
    )


def _likeness(runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        seen = run.last_validation
        cells = [_number(seen.get(key, seen.get(term))) for key, term in LIKENESS.values()]
        rows.append((run.name, *cells, _number(seen.get("attention_entropy"))))
    return Table(
        "Likeness on the rows of the validation loss, without dropout. Tokens: mean cosine between the last vectors of "
        "different words of a text, its square, and after the text's mean was taken away. Heads: the same between the "
        "attention weights of different heads, all layers. Entropy: nats of a head's row; sharper heads are less alike "
        "by that alone. Only what a run was penalised for is measured; of our definition (MTH-style).",
        ("run", *LIKENESS, "entropy"),
        rows,
        numbers=(*LIKENESS, "entropy"),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
