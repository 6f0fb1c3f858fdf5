"""Word in Context without training: one sense when the cosine of a word's two vectors is above a threshold.

positional_artefacts.md 2.1. Luo et al. (2021) report the best of all layers and nine thresholds on the very split they
choose them on; `run_wic` gives that number, and what the same choice is worth on the splits it was not chosen on.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.analysis.mean_vectors import Row
from posenc_jax.analysis.transforms import Transform
from posenc_jax.data.spans import tokenize
from posenc_jax.data.wic import SPLITS, Place, WicSplit, load_wic
from posenc_jax.evaluation.similarity.changes import make_change
from posenc_jax.evaluation.similarity.records import Record, keeper
from posenc_jax.evaluation.similarity.vectors import cosines
from posenc_jax.evaluation.tables import NOTHING, Table
from posenc_jax.interop.pretrained import FrozenEncoder, Pretrained, layer_names, load_encoder

HEADING = "Word in Context"
GRID = tuple(round(0.1 * step, 1) for step in range(1, 10))
"""Thresholds of the paper."""
QUANTILES = tuple(step / 100 for step in range(1, 100))
"""Where a layer's thresholds lie among its cosines (our choice): the grid has none that fits where cosines crowd."""
RULES = {"grid": "thresholds 0.1 to 0.9 (the paper's)", "quantiles": "thresholds at the percentiles of the cosines"}


def run_wic(
    workdir: str | Path,
    data: str | Path,
    *,
    split: str = "train",
    change: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Record:
    """Chooses layer and threshold on `split`, scores there and on every other split that has labels.

    `change` is done to the vectors before their cosines (`make_change`, fit on the sentences of `split`); the record
    then holds the choices and scores of both, under "plain" those of the vectors as they are, and McNemar's test
    between the two. Writes WORKDIR/wic/scores.json, a list in which a record of the same encoder, change and data is
    replaced, and report.md. `say` hears of each split that is done. Raises `UserError` for what is wrong with the
    workdir or the files, `UsageError` for a dimension or a change that is not there.
    """
    began = time.monotonic()
    splits, notes = [load_wic(data, split)], []
    for other in (name for name in SPLITS if name != split):
        if (Path(data) / other / f"{other}.gold.txt").is_file():
            splits.append(load_wic(data, other))
        else:
            notes.append(f"not held out: {data} has no {other}/{other}.gold.txt")
    encoder = load_encoder(workdir)
    made = None
    if change is not None:
        texts = [place.text for side in (splits[0].places_a, splits[0].places_b) for place in side]
        made = make_change(encoder, change, texts, specials=False)
    with keeper(encoder.pretrained.workdir, "wic", HEADING, _identity, markdown) as keep:
        cosines_of, same_of = {}, {one.name: one.same_N for one in splits}
        for one in splits:
            cosines_of[one.name], said = word_cosines(encoder, one, (None, made.transform) if made else (None,))
            notes += said
            say(f"{one.name}: {len(one):,} pairs, {len(cosines_of)} of {len(splits)} splits done")
        plain, *changed = (
            score_splits({name: found[place] for name, found in cosines_of.items()}, same_of, split)
            for place in range(2 if made else 1)
        )
        record = {
            "encoder": encoder.name,
            "split": split,
            "data": {one.name: one.digest for one in splits},
            "layers": list(layer_names(encoder.pretrained.model)),
            **(changed[0] if changed else plain),
            "notes": notes,
        }
        if made:
            record["change"] = made.record
            record["plain"] = {rule: plain[rule] for rule in RULES}
            record["mcnemar"] = _differences(cosines_of, same_of, plain, changed[0])
        record["seconds"] = round(time.monotonic() - began, 1)
        keep(record)
    return record


def word_cosines(
    encoder: FrozenEncoder, split: WicSplit, transforms: Sequence[Transform | None] = (None,)
) -> tuple[np.ndarray, list[str]]:
    """Float64 [T, N, E], the cosine of the word's two vectors in each layer, under each transform (None: as they are);
    and what was out of the ordinary."""
    rows, cut = word_rows(encoder.pretrained, [*split.places_a, *split.places_b])
    notes = []
    if cut:
        notes.append(f"{split.name}: {cut} sentences cut to {encoder.pretrained.length} slots around the word")
    if empty := sum(row.start >= row.stop for row in rows):
        notes.append(f"{split.name}: {empty} words have no subword; their cosine is 0")
    return cosines(encoder, rows[: len(split)], rows[len(split) :], transforms=transforms), notes


def word_rows(pretrained: Pretrained, places: Sequence[Place]) -> tuple[list[Row], int]:
    """The sentences, with the slots of the word in question; and how many were cut, to a window around the word.

    The vector of a word is the mean over its subwords (our choice: the paper does not say); a piece that is only the
    space before it is none of them.
    """
    tokenizer, room = pretrained.tokenizer, pretrained.length - 2
    rows, cut = [], 0
    for place in places:
        passage = tokenize(place.text, tokenizer)
        found = passage.span(place.start, place.end)
        ids, (start, stop) = passage.ids, (found[0], found[1] + 1) if found else (0, 0)
        if len(ids) > room:
            cut += 1
            first = min(max(0, (start + stop - room) // 2), len(ids) - room)
            ids, start, stop = ids[first : first + room], max(0, start - first), min(room, stop - first)
        rows.append(Row((tokenizer.cls, *ids, tokenizer.sep), start + 1, stop + 1))
    return rows, cut


# ---- scores -------------------------------------------------------------------------------------------------------


def score_splits(cosines_of: Mapping[str, np.ndarray], same_of: Mapping[str, np.ndarray], fit: str) -> Record:
    """Accuracies in percent of the choices made on split `fit`, from cosines [N, E] and labels [N] of each split.

    {"pairs" and "always same": by split; "grid" and "quantiles": {"layers": the best threshold of each layer, "best":
    the best of all}}, an entry being the layer's place, the threshold, and accuracy and its standard error by split.
    Of equals the lowest layer and threshold are taken.
    """
    layers = cosines_of[fit].shape[1]
    record: Record = {
        "pairs": {name: len(same_N) for name, same_N in same_of.items()},
        "always same": {name: 100 * float(same_N.mean()) for name, same_N in same_of.items()},
    }
    for rule in RULES:
        entries = []
        for layer in range(layers):
            fitted_N = cosines_of[fit][:, layer]
            thresholds_T = np.array(GRID) if rule == "grid" else np.quantile(fitted_N, QUANTILES)
            accuracy_T = ((fitted_N[:, None] > thresholds_T[None]) == same_of[fit][:, None]).mean(0)
            threshold = float(thresholds_T[accuracy_T.argmax()])
            entries.append(
                {"layer": layer, "threshold": threshold, **_accuracies(cosines_of, same_of, layer, threshold)}
            )
        record[rule] = {"layers": entries, "best": max(entries, key=lambda entry: entry["accuracy"][fit])}
    return record


def _accuracies(
    cosines_of: Mapping[str, np.ndarray], same_of: Mapping[str, np.ndarray], layer: int, threshold: float
) -> dict[str, dict[str, float]]:
    accuracy, error = {}, {}
    for name, same_N in same_of.items():
        share = float(np.mean((cosines_of[name][:, layer] > threshold) == same_N))
        accuracy[name] = 100 * share
        error[name] = 100 * standard_error(share, len(same_N))
    return {"accuracy": accuracy, "standard error": error}


def standard_error(share: float, count: int) -> float:
    """Binomial, of a share of `count` independent answers. It knows nothing of the choice of layer and threshold."""
    return float(np.sqrt(share * (1 - share) / count))


def mcnemar(right_a_N: np.ndarray, right_b_N: np.ndarray) -> tuple[int, int, float]:
    """Do two ways to answer the same pairs differ? (only A is right, only B is right, two-sided p), the exact test.

    Takes for each pair whether the answer was right (bool [N]). McNemar (1947): where both are right or both wrong
    nothing is learned, and of the others each way is as likely. p is 1 where there are no others.
    """
    from scipy.stats import binomtest

    right_a_N, right_b_N = np.asarray(right_a_N, bool), np.asarray(right_b_N, bool)
    if right_a_N.shape != right_b_N.shape:
        raise ValueError(f"{right_a_N.shape} and {right_b_N.shape} answers are not to the same pairs")
    only_a, only_b = int((right_a_N & ~right_b_N).sum()), int((right_b_N & ~right_a_N).sum())
    p = binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    return only_a, only_b, float(p)


def _differences(
    cosines_of: Mapping[str, np.ndarray], same_of: Mapping[str, np.ndarray], plain: Record, changed: Record
) -> dict[str, dict[str, list[float]]]:
    """{rule: {split: [only raw is right, only changed is right, p]}}, each with the layer and threshold it chose."""
    found: dict[str, dict[str, list[float]]] = {}
    for rule in RULES:
        chosen = [one[rule]["best"] for one in (plain, changed)]
        found[rule] = {}
        for name, same_N in same_of.items():
            right = [
                (cosines_of[name][place, :, best["layer"]] > best["threshold"]) == same_N
                for place, best in enumerate(chosen)
            ]
            found[rule][name] = list(mcnemar(*right))
    return found


# ---- tables -------------------------------------------------------------------------------------------------------


def tables(record: Record) -> list[Table]:
    """The best layer and threshold of each rule; the best threshold of every layer; raw and changed side by side, if
    both are, and whether they differ."""
    return [_best(record), _by_layer(record), *([_differ(record)] if "change" in record else [])]


def _variants(record: Record) -> dict[str, Record]:
    """What a name ends in, and the choices."""
    return {", raw": record["plain"], ", changed": record} if "change" in record else {"": record}


def _best(record: Record) -> Table:
    splits, names, fit = list(record["pairs"]), record["layers"], record["split"]
    caption = (
        f"Accuracy in % and binomial standard error; layer and threshold chosen on {fit} ({record['pairs'][fit]:,} "
        f"pairs), so that {fit} flatters; "
        + (f"{' and '.join(splits[1:])} held out. " if splits[1:] else "nothing held out. ")
        + "A word is the mean of its subwords; layer 0 is the input of the first layer."
        + (f" Changed ({record['change']['name']}): {record['change']['what']}." if "change" in record else "")
    )
    rows = []
    for rule, what in RULES.items():
        for end, chosen in _variants(record).items():
            best = chosen[rule]["best"]
            scores = (f"{best['accuracy'][name]:.1f} ± {best['standard error'][name]:.1f}" for name in splits)
            rows.append((what + end, names[best["layer"]], f"{best['threshold']:.4g}", *scores))
    rows.append(("always the same sense", NOTHING, NOTHING, *(f"{record['always same'][name]:.1f}" for name in splits)))
    columns = ("rule", "layer", "threshold", *splits)
    return Table(caption, columns, rows, columns[1:])


def _by_layer(record: Record) -> Table:
    splits = list(record["pairs"])
    rows = []
    for place, name in enumerate(record["layers"]):
        cells = []
        for rule in RULES:
            for chosen in _variants(record).values():
                entry = chosen[rule]["layers"][place]
                cells += [f"{entry['threshold']:.4g}", *(f"{entry['accuracy'][split]:.1f}" for split in splits)]
        rows.append((name, *cells))
    heads = [f"{rule}{end}: {what}" for rule in RULES for end in _variants(record) for what in ("threshold", *splits)]
    caption = f"Accuracy in % of each layer with its best threshold on {record['split']}."
    return Table(caption, ("layer", *heads), rows, heads)


def _differ(record: Record) -> Table:
    """McNemar's test of what raw and changed vectors answer."""
    rows = [
        (RULES[rule], split, f"{only_raw:.0f}", f"{only_changed:.0f}", f"{p:.2g}")
        for rule, by_split in record["mcnemar"].items()
        for split, (only_raw, only_changed, p) in by_split.items()
    ]
    columns = ("rule", "split", "only raw is right", "only changed is right", "p")
    caption = (
        "Pairs that one of the two answers alone gets right, and McNemar's exact two-sided p, each with the layer and "
        f"threshold it chose; on {record['split']} p knows nothing of that choice."
    )
    return Table(caption, columns, rows, columns[2:])


def markdown(record: Record) -> str:
    """The tables, and what was out of the ordinary."""
    return "\n\n".join([*(table.markdown() for table in tables(record)), *(f"- {note}" for note in record["notes"])])


def _identity(record: Record) -> tuple[Any, ...]:
    changed = record["change"]["name"] if "change" in record else None
    return record["encoder"], record["split"], sorted(record["data"].items()), changed
