"""What each encoder made of positions: a map a head, and what such a head would look at by position alone."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from posenc_jax.analysis.patterns import Pattern, classify
from posenc_jax.analysis.plots.positions import plot_position_maps
from posenc_jax.analysis.position_maps import position_maps
from posenc_jax.analysis.texts import mark_texts
from posenc_jax.analysis.word_terms import PositionMap
from posenc_jax.config import ModelConfig
from posenc_jax.evaluation.page.html import Html, folded, join
from posenc_jax.evaluation.page.pictures import figures, picture
from posenc_jax.evaluation.page.texts import Texts
from posenc_jax.interop.pretrained import FrozenEncoder

LENGTH = 64
"""Positions shown at most."""
ROWS = 64
"""Sentences that give the words, where a scheme's term needs some."""


def positions_part(frozen: FrozenEncoder, texts: Texts) -> tuple[Html, list[tuple[str, str]]]:
    """The maps of a scheme, that of all its parts first; and for each shown (its name, the patterns of its heads).

    Raises `UsageError` for a scheme without a map.
    """
    model = frozen.pretrained.model
    length = min(LENGTH, frozen.pretrained.length)
    maps = position_maps(model, frozen.params, length, *_words(frozen, texts, length))
    chosen = _chosen(maps, model)
    main, others = chosen[-1:], chosen[:-1]
    if any(one.layer is not None for one in chosen):
        main, others = chosen, []
    layers = {one.layer for one in maps} - {None}
    left_out = f"; of {len(layers)} layers the first and the last are shown" if len(layers) > 2 else ""
    shown = [_shown(one, model, left_out) for one in main]
    rows = [(_name(one), _counted(classify(_logits(one, model)))) for one in main]
    parts = folded("Each part of the scheme", figures(_shown(one, model) for one in others)) if others else ""
    return join([figures(shown), parts]), rows


def _words(frozen: FrozenEncoder, texts: Texts, length: int) -> tuple[np.ndarray, np.ndarray]:
    marked = list(mark_texts(frozen.pretrained.tokenizer, texts.sentences[:ROWS], length))
    tokens_BxL, segments_BxL = (np.zeros((max(1, len(marked)), length), np.int32) for _ in range(2))
    for row, text in enumerate(marked):
        tokens_BxL[row, : len(text.ids_L)] = text.ids_L
        segments_BxL[row, : len(text.ids_L)] = 1
    return tokens_BxL, segments_BxL


def _chosen(maps: Sequence[PositionMap], model: ModelConfig) -> list[PositionMap]:
    """Those that are used as they are; of maps of every layer the first and the last."""
    used = [one for one in maps if not one.name.endswith("no reset")]
    return [one for one in used if one.layer in (None, 1, model.layers)]


def _logits(one: PositionMap, model: ModelConfig) -> np.ndarray:
    """Without [CLS] where it is untied: its cells tell no position, and may be far above all others."""
    return one.map_HxLxL[:, 1:, 1:] if model.positions.untie_cls else one.map_HxLxL


def _shown(one: PositionMap, model: ModelConfig, note: str = "") -> Html:
    patterns = classify(_logits(one, model))
    untied = int(model.positions.untie_cls)
    made = plot_position_maps(_logits(one, model), patterns, first=untied)
    return picture(
        made,
        f"Positional maps of {_name(one)}, a panel a head: {_counted(patterns)}.",
        f"{_name(one)}: {one.statement}; positions {untied} to {one.map_HxLxL.shape[-1] - 1}"
        f"{', the row and column of [CLS] left out' * untied}{note}.",
    )


def _name(one: PositionMap) -> str:
    return one.name if one.layer is None else f"{one.name}, layer {one.layer}"


def _counted(patterns: Sequence[Pattern]) -> str:
    """ "2 local, 1 broad" """
    return ", ".join(f"{count} {label}" for label, count in Counter(one.label for one in patterns).most_common())
