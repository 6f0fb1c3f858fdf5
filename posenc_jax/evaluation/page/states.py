"""Outlier dimensions and geometry of an encoder's states, on a few hundred sentences."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from posenc_jax.analysis.geometry import Geometry, summarise
from posenc_jax.analysis.outliers import Outlier, extremum_share, find_outliers, mean_vectors, persistent_outliers
from posenc_jax.analysis.plots.geometry import plot_geometry
from posenc_jax.analysis.plots.outliers import plot_mean_vectors
from posenc_jax.analysis.sampling import occurrences, sample_pairs
from posenc_jax.analysis.states import TokenStates, states_of
from posenc_jax.analysis.transforms import clip_dims
from posenc_jax.analysis.words import pool_words
from posenc_jax.errors import UserError
from posenc_jax.evaluation.page.html import Html, absent, element, join, table
from posenc_jax.evaluation.page.parts import attempt
from posenc_jax.evaluation.page.pictures import picture
from posenc_jax.evaluation.page.texts import Texts
from posenc_jax.evaluation.tables import NOTHING, Table
from posenc_jax.interop.pretrained import FrozenEncoder, layer_names

MAX_TOKENS, MAX_VALUES = 12_000, 150_000_000
"""Subwords that are read at most, and numbers kept of them: 0.6 GB, 5,859 subwords of a large model."""
FEWEST_SENTENCES = 5
"""A word counts where it is in so many (Luo et al. 2021: 10, of far more text)."""
LOWEST = 3.9
"""Inches of the picture of mean vectors, whose label wants them."""
WORDS, OCCURRENCES = 300, 50
"""Words at most, and occurrences of each, so that it takes seconds."""
MOST_ROWS = 20
"""Of the table of outliers."""
SHOWN = 6
"""Outliers with a colour in the picture."""


def states_part(frozen: FrozenEncoder, texts: Texts) -> tuple[Html, list[tuple[str, ...]]]:
    """Outliers and geometry; and a line for each variant of the vectors: (variant, anisotropy, adjusted
    self-similarity, outliers). Raises `UserError` where the texts hold nothing to measure."""
    if not texts.sentences:
        raise UserError(f"{texts.origin} has no sentence of four words")
    model = frozen.pretrained.model
    most = min(MAX_TOKENS, MAX_VALUES // (len(layer_names(model)) * model.width))
    states = states_of(frozen, texts.sentences, special=False, max_tokens=most)
    said = (
        f"Encoder of {frozen.name}; {len(states):,} subwords of {len(np.unique(states.sentence_N)):,} sentences, [CLS] "
        f"and [SEP] left out; {texts.origin}."
    )
    mean_ExD = mean_vectors(states.states_ExNxD)
    found = find_outliers(mean_ExD, *extremum_share(states.states_ExNxD))
    persistent = persistent_outliers(found, states.layers)
    lines: list[tuple[str, ...]] = []

    def geometry() -> Html:
        words = pool_words(states)
        measured = _measure(words, persistent)
        lines.extend(_line(name, one, persistent) for name, one in measured.variants.items())
        return _geometry(measured, words.layers, persistent, said)

    parts = {
        "Outliers": attempt("The outliers", _outliers, states.layers, mean_ExD, found, persistent, said),
        "Geometry": attempt("The geometry", geometry),
    }
    content = [element("div", element("h4", name), part) for name, part in parts.items()]
    return element("div", *content, class_="columns"), lines


def _outliers(
    layers: Sequence[str],
    mean_ExD: np.ndarray,
    found: Mapping[int, Sequence[Outlier]],
    persistent: Sequence[int],
    said: str,
) -> Html:
    named = f"dimensions {_numbers(persistent)}" if persistent else "no dimension"
    made = plot_mean_vectors(mean_ExD, layers, persistent[:SHOWN])
    width, height = made.get_size_inches()
    made.set_size_inches(width, max(height, LOWEST))
    shown = picture(
        made,
        f"Mean state of each layer, value against dimension: {named} stand out in at least half of the layers.",
        f"Mean over tokens of each dimension, a panel a layer. {said}",
    )
    if not any(found.values()):
        return join([shown, absent("No dimension of any layer is an outlier.")])
    return join([shown, table("Outlier dimensions", _outlier_table(layers, found, persistent))])


def _outlier_table(layers: Sequence[str], found: Mapping[int, Sequence[Outlier]], persistent: Sequence[int]) -> Table:
    """A line a dimension and side, with the layer in which its mean stands farthest out; persistent ones first."""
    by_side: dict[tuple[int, int], list[tuple[int, Outlier]]] = {}
    for place, ones in found.items():
        for one in ones:
            by_side.setdefault((one.dim, one.sign), []).append((place, one))
    rows = []
    for (dim, _), places in by_side.items():
        farthest, one = max(places, key=lambda pair: abs(pair[1].z))
        where = " ".join(layers[place] for place, _ in places)
        strength = (f"{one.mean:+.2f}", f"{one.z:+.1f}", f"{100 * one.share:.0f}")
        rows.append((dim not in persistent, -abs(one.z), (str(dim), where, layers[farthest], *strength)))
    kept = [cells for *_, cells in sorted(rows)]
    left = f" {len(kept) - MOST_ROWS} more are left out." if len(kept) > MOST_ROWS else ""
    caption = (
        f"Persistent: {_numbers(persistent) or 'none'}. Mean over tokens, z (robust deviations of the mean from the "
        "median dimension) and share (% of tokens in which the dimension is the smallest, of a mean below 0, or the "
        f"largest), all in the layer where |z| is largest. Dimensions count from 0.{left}"
    )
    columns = ("dimension", "outlier in layers", "farthest in", "mean", "z", "share")
    return Table(caption, columns, kept[:MOST_ROWS], ("dimension", *columns[2:]))


@dataclasses.dataclass(frozen=True)
class Measured:
    """The geometry of the states as they are, and without persistent outliers."""

    variants: dict[str, Geometry]
    pairs: int
    words: int


def _measure(words: TokenStates, persistent: Sequence[int]) -> Measured:
    """Raises `UserError` where the texts are too few."""
    pairs_Px2, occurring = sample_pairs(words), occurrences(words, FEWEST_SENTENCES, WORDS, OCCURRENCES)
    if not occurring:
        raise UserError(f"no word is in {FEWEST_SENTENCES} of these sentences; give more with --text")
    variants = {"raw": summarise(words.states_ExNxD, pairs_Px2, occurring)}
    if persistent:
        clipped_ExNxD = clip_dims(persistent)(words.states_ExNxD)
        variants["clipped"] = summarise(clipped_ExNxD, pairs_Px2, occurring)
    return Measured(variants, len(pairs_Px2), len(occurring))


def _line(name: str, one: Geometry, persistent: Sequence[int]) -> tuple[str, ...]:
    between = f"{one.anisotropy.mean_E[-1]:.3f} ± {one.anisotropy.error_E[-1]:.3f}"
    return name, between, f"{one.adjusted_E[-1]:.3f}", _numbers(persistent) or "none"


def _numbers(dims: Sequence[int]) -> str:
    return ", ".join(map(str, dims))


def _geometry(measured: Measured, layers: Sequence[str], persistent: Sequence[int], said: str) -> Html:
    clipped = f"Clipped: dimensions {_numbers(persistent)} set to 0. " if persistent else ""
    caption = (
        f"Cosines by layer: {measured.pairs:,} pairs of words of different sentences; {measured.words:,} words that "
        f"are in at least {FEWEST_SENTENCES} sentences, at most {OCCURRENCES} times each. A word is the mean of its "
        f"subwords. {clipped}{said}"
    )
    lasts = "; ".join(f"{name} {one.anisotropy.mean_E[-1]:.2f}" for name, one in measured.variants.items())
    alt = f"Anisotropy and self-similarity over layers; anisotropy of the last layer: {lasts}."
    shown = picture(plot_geometry(measured.variants, layers), alt, caption)
    return join([shown, table("Geometry by layer", _table(measured.variants, layers))])


def _table(variants: Mapping[str, Geometry], layers: Sequence[str]) -> Table:
    columns = ("layer", "vectors", "anisotropy", "self-similarity", "adjusted", "MEV")
    rows = [
        (
            layer,
            name,
            f"{one.anisotropy.mean_E[place]:.3f} ± {one.anisotropy.error_E[place]:.3f}",
            f"{one.self_similarity_E[place]:.3f}",
            f"{one.adjusted_E[place]:.3f}",
            _mev(one, place),
        )
        for place, layer in enumerate(layers)
        for name, one in variants.items()
    ]
    caption = (
        "As in the picture; ±: standard error over the pairs. MEV, maximum explainable variance: share of the first "
        "principal component in the variance of a word's occurrences, mean over words, or in brackets over how many of "
        "them, where vectors of the rest do not vary (Ethayarajh 2019)."
    )
    return Table(caption, columns, rows, columns[2:])


def _mev(one: Geometry, place: int) -> str:
    count = one.mev_words_E[place]
    if not count:
        return NOTHING
    return f"{one.mev_E[place]:.3f}" + (f" ({count})" if count < one.words else "")
