"""Learning curves of runs: a line a run, and one with a band where runs differ by their seed only."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from posenc_jax.analysis.learning import Curve, SeedBand, seed_band
from posenc_jax.analysis.plots.learning import plot_learning
from posenc_jax.config import config_diff
from posenc_jax.evaluation.page.html import Html, absent
from posenc_jax.evaluation.page.pictures import figures, picture
from posenc_jax.evaluation.runs import Run

KINDS = {"validation": "validation loss", "train": "training loss"}


def seed_groups(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by name; those that differ by their seed only, and were validated on the same rows, under one."""
    groups: list[list[Run]] = []
    for run in runs:
        group = next((group for group in groups if _same_but_seed(group[0], run)), None)
        groups.append([run]) if group is None else group.append(run)
    variants = Counter(group[0].variant for group in groups)
    return {
        group[0].variant
        if len(group) > 1 and variants[group[0].variant] == 1
        else ", ".join(one.name for one in group): group
        for group in groups
    }


def _same_but_seed(one: Run, other: Run) -> bool:
    differing = {line.partition(":")[0] for line in config_diff(one.config, other.config)}
    return differing == {"train.seed"} and one.rows.get("validation") == other.rows.get("validation")


def curves(runs: Sequence[Run]) -> Html:
    """Validation and training losses over the steps; a sentence where there is none."""
    groups = seed_groups(runs)
    drawn = [one for kind in KINDS if (one := _drawn(kind, groups))]
    return figures(drawn) if drawn else absent("No run has logged a loss yet, so there is no curve.")


def _drawn(kind: str, groups: Mapping[str, Sequence[Run]]) -> Html | None:
    shown = bands({name: [finite(run.curve(kind)) for run in group] for name, group in groups.items()})
    if not shown:
        return None
    entropies = sorted({run.unigram_entropy for group in groups.values() for run in group} - {None})
    made = plot_learning(shown, f"{KINDS[kind]}, nats a masked word", entropies if kind == "validation" else ())
    made.set_size_inches(4.6, 3.5)
    lasts = "; ".join(f"{name} {band.median_S[-1]:.3f}" for name, band in shown.items())
    return picture(made, f"{KINDS[kind].capitalize()} over steps; the last: {lasts}.", _caption(kind, shown, entropies))


def finite(curve: Curve) -> Curve:
    """The points whose value is a number: a run that diverged logs others, too."""
    return [(step, value) for step, value in curve if math.isfinite(value)]


def bands(curves_of: Mapping[str, Sequence[Curve]]) -> dict[str, SeedBand]:
    """A band for each name that has a point; one each of its curves where they have no step in common."""
    found = {}
    for name, every in curves_of.items():
        every = [curve for curve in every if curve]
        try:
            found |= {name: seed_band(every)} if every else {}
        except ValueError:
            found |= {f"{name}, {number}": seed_band([curve]) for number, curve in enumerate(every, 1)}
    return found


def _caption(kind: str, shown: Mapping[str, SeedBand], entropies: Sequence[float]) -> str:
    where = "held-out rows, as in the table" if kind == "validation" else "the batches since the point before"
    words = [f"{KINDS[kind].capitalize()}, mean over {where}; with replaced-token detection the generator's."]
    if any(band.seeds > 1 for band in shown.values()):
        words.append("Line: median over seeds; band: least to most, no confidence interval.")
    if entropies and kind == "validation":
        words.append(
            "Dotted: unigram entropy, what knowing how frequent each word is and nothing else scores; dot: the step "
            "at which the line first is there, interpolated."
        )
    return " ".join(words)
