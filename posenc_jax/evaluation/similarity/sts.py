"""Sentence similarity without training: cosines of mean vectors against people's scores (Luo et al. 2021;
positional_artefacts.md 2.2)."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.analysis.mean_vectors import sentence_rows
from posenc_jax.analysis.transforms import Transform
from posenc_jax.data.sts import StsSet, load_sts
from posenc_jax.evaluation.metrics import score
from posenc_jax.evaluation.similarity.changes import make_change
from posenc_jax.evaluation.similarity.records import Record, keeper
from posenc_jax.evaluation.similarity.vectors import choose_layers, cosines
from posenc_jax.evaluation.tables import Table
from posenc_jax.interop.pretrained import FrozenEncoder, layer_names, load_encoder

HEADING = "Sentence similarity"
METRICS = ("spearman", "pearson")


def run_sts(
    workdir: str | Path,
    data: str | Path,
    *,
    split: str = "test",
    layers: str = "all",
    specials: bool = False,
    change: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Record:
    """Scores the encoder of `workdir` on every set under `data`; writes WORKDIR/sts/scores.json and report.md.

    `layers` is "all", "last" or a number; `specials` puts [CLS] and [SEP] into the mean of a sentence; `change` is
    done to the vectors before their cosines (`make_change`), and the record holds both scores, under "plain" those of
    the vectors as they are. `say` hears of each set that is done. A record of the same encoder, settings, change and
    data is replaced, others stay. Raises `UserError` for what is wrong with the workdir or the files, `UsageError`
    for a layer, a dimension or a change that is not there.
    """
    began = time.monotonic()
    sets, absent = load_sts(data, split)
    encoder = load_encoder(workdir)
    choose_layers(encoder.pretrained.model, layers)
    made = None
    if change is not None:
        texts = [text for one in sets for part in one.parts for text in (*part.texts_a, *part.texts_b)]
        made = make_change(encoder, change, texts, specials)
    with keeper(encoder.pretrained.workdir, "sts", HEADING, _identity, markdown) as keep:
        record = {
            "encoder": encoder.name,
            "split": split,
            "specials": specials,
            **({"change": made.record} if made else {}),
            **score_sets(encoder, sets, layers, specials, made and made.transform, say),
            "absent": absent,
        }
        record["seconds"] = round(time.monotonic() - began, 1)
        keep(record)
    return record


def score_sets(
    encoder: FrozenEncoder,
    sets: Sequence[StsSet],
    layers: str = "all",
    specials: bool = False,
    transform: Transform | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Record:
    """{"layers": names, "sets": one entry a set, "notes": what was out of the ordinary}.

    An entry has the correlations of each sub-set and of the three ways to put them together, a list over the layers
    each (see `combine`), and the sub-sets that are missing. With a `transform`, "sets" are those of the changed
    vectors, and "plain" those of the vectors as they are.
    """
    chosen = choose_layers(encoder.pretrained.model, layers)
    names = [layer_names(encoder.pretrained.model)[place] for place in chosen]
    variants = {"sets": None} if transform is None else {"plain": None, "sets": transform}
    record: Record = {"layers": names, **{variant: [] for variant in variants}, "notes": []}
    for one in sets:
        cosines_of = []
        for part in one.parts:
            rows, cut = sentence_rows(encoder.pretrained, [*part.texts_a, *part.texts_b], specials)
            cosines_of.append(cosines(encoder, rows[: len(part)], rows[len(part) :], chosen, [*variants.values()]))
            if cut:
                record["notes"].append(
                    f"{one.name} {part.name}: {cut} sentences cut at {encoder.pretrained.length} slots"
                )
            if empty := sum(row.start >= row.stop for row in rows):
                record["notes"].append(
                    f"{one.name} {part.name}: {empty} sentences have no word in the vocabulary's eyes"
                )
        for place, variant in enumerate(variants):
            scored, why = combine({p.name: (p.scores_N, c[place]) for p, c in zip(one.parts, cosines_of, strict=True)})
            named = {"plain": "as they are, "}.get(variant, "")
            record["notes"] += [f"{one.name} {where} {named}layer {names[e]}: {reason}" for where, e, reason in why]
            record[variant].append({"set": one.name, "data": one.digest, "missing": list(one.missing), **scored})
        say(f"{one.name}: {scored['all']['pairs']:,} pairs, {len(record['sets'])} of {len(sets)} sets done")
    return record


def combine(
    parts: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> tuple[dict[str, Any], list[tuple[str, int, str]]]:
    """Correlations of cosines [N, E] with scores [N] by sub-set, and of the sub-sets together.

    "mean" is over sub-sets, "wmean" weighted by their pairs (SentEval has these two), "all" the correlation of all
    their pairs at once. Values x 100, lists over layers. Beside it (where, layer, why) for each value that is not
    defined, as of a constant cosine, and set to 0.
    """
    why: list[tuple[str, int, str]] = []

    def correlate(where: str, scores_N: np.ndarray, cosines_NxE: np.ndarray) -> dict[str, Any]:
        answer: dict[str, Any] = {"pairs": len(scores_N)}
        for metric in METRICS:
            found = [score(metric, scores_N, cosines_N) for cosines_N in cosines_NxE.T]
            answer[metric] = [100 * value for value, _ in found]
            why.extend((where, place, reason) for place, (_, reason) in enumerate(found) if reason)
        return answer

    subsets = {name: correlate(name, *part) for name, part in parts.items()}
    pairs_S = np.array([one["pairs"] for one in subsets.values()])
    answer: dict[str, Any] = {"subsets": subsets, "mean": {}, "wmean": {}}
    for metric in METRICS:
        values_SxE = np.array([one[metric] for one in subsets.values()])
        answer["mean"][metric] = values_SxE.mean(0).tolist()
        answer["wmean"][metric] = np.average(values_SxE, axis=0, weights=pairs_S).tolist()
    if len(parts) == 1:
        answer["all"] = next(iter(subsets.values()))
    else:
        scores_N, cosines_NxE = (np.concatenate(side) for side in zip(*parts.values(), strict=True))
        answer["all"] = correlate("all", scores_N, cosines_NxE)
    return answer, why


# ---- tables -------------------------------------------------------------------------------------------------------


def tables(record: Record) -> list[Table]:
    """By layer; then by sub-set, and every way to put sub-sets together. Raw and changed side by side, if both are."""
    return [_by_layer(record), _by_subset(record)]


def _variants(record: Record) -> dict[str, list[dict[str, Any]]]:
    """What a column's name ends in, and its scores."""
    return {", raw": record["plain"], ", changed": record["sets"]} if "change" in record else {"": record["sets"]}


def _by_layer(record: Record) -> Table:
    columns, values = ("layer",), []
    for entries in zip(*_variants(record).values(), strict=True):
        columns += tuple(entry["set"] + end for entry, end in zip(entries, _variants(record), strict=True))
        values += [entry["mean"]["spearman"] for entry in entries]
    rows = [(name, *(f"{one[e]:.2f}" for one in values)) for e, name in enumerate(record["layers"])]
    rows.append(("best on these same scores", *(_best(record, one) for one in values)))
    return Table(_caption(record), columns, rows, columns[1:])


def _by_subset(record: Record) -> Table:
    last = record["layers"][-1]
    heads = (f"Spearman, layer {last}", f"Pearson, layer {last}", "best on these same scores")
    columns = ("set", "of", "pairs", *(head + end for head in heads for end in _variants(record)))
    rows = []
    for entries in zip(*_variants(record).values(), strict=True):
        for name, *lines in zip(_lines(entries[0]), *(_lines(one).values() for one in entries), strict=True):
            scores = [f"{line[metric][-1]:.2f}" for metric in METRICS for line in lines]
            best = [_best(record, line["spearman"]) for line in lines]
            rows.append((entries[0]["set"], name, f"{lines[0]['pairs']:,}", *scores, *best))
    return Table(" ".join(["The same by sub-set, x 100.", *_missing(record)]), columns, rows, columns[2:])


def _lines(entry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The sub-sets of a set, then what puts them together where there are several."""
    lines = dict(entry["subsets"])
    if len(lines) > 1:
        pairs, count = entry["all"]["pairs"], f"{len(lines)} sub-sets"
        lines |= {f"mean of {count}": entry["mean"], f"wmean of {count}": entry["wmean"], "all pairs": entry["all"]}
        lines = {name: {"pairs": pairs, **line} for name, line in lines.items()}
    return lines


def _missing(record: Record) -> list[str]:
    lacking = [f"{one['set']} lacks {', '.join(one['missing'])}." for one in record["sets"] if one["missing"]]
    return [*lacking, *(f"{name} is not here: {reason}." for name, reason in record["absent"].items())]


def _caption(record: Record) -> str:
    inside = "in" if record["specials"] else "not in"
    return (
        f"Spearman x 100 of cosine and people's score, {record['split']} split, no training; a set of several "
        f"sub-sets: their mean, as SentEval. A sentence is the mean of its subword vectors, [CLS] and [SEP] {inside} "
        "the mean. Layer 0 is the input of the first layer. Chance is 0."
        + (f" Changed ({record['change']['name']}): {record['change']['what']}." if "change" in record else "")
    )


def _best(record: Record, values: Sequence[float]) -> str:
    place = int(np.argmax(values))
    return f"{values[place]:.2f} (layer {record['layers'][place]})"


def markdown(record: Record) -> str:
    """The tables, and what was out of the ordinary."""
    return "\n\n".join([*(table.markdown() for table in tables(record)), *(f"- {note}" for note in record["notes"])])


def _identity(record: Record) -> tuple[Any, ...]:
    data = tuple((one["set"], one["data"], tuple(one["subsets"])) for one in record["sets"])
    changed = record["change"]["name"] if "change" in record else None
    return record["encoder"], record["split"], record["specials"], tuple(record["layers"]), data, changed
