"""Every variant that is here, side by side: where it comes from, what it adds, which configs use it."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from posenc_jax.config import CompatibilityConfig, ConvolutionConfig, ModelConfig, PositionConfig, describe_model
from posenc_jax.config_files import load_config, shipped_variants
from posenc_jax.evaluation.tables import NOTHING, Table
from posenc_jax.model.cost import encoder_flops, encoder_parameters
from posenc_jax.positions import PARTS, is_relative, part_names

LENGTH = 512
BASE = ModelConfig(vocab_size=30_522, positions=PositionConfig(scheme="none"))
"""BERT-base without positions: what every variant is added to."""

COMPATIBILITY_SOURCES = {
    "dot_product": "Vaswani et al. 2017",
    "symmetric": "Courtois et al. 2024",
    "pairwise": "Courtois et al. 2024, as published in code",
}
CONVOLUTION_SOURCES = {
    "span_dynamic": "Jiang et al. 2020 (ConvBERT), as published in code",
    "dynamic": "Wu et al. 2019, as ConvBERT's ablation",
    "light": "Wu et al. 2019, as ConvBERT's ablation",
    "separable": "ConvBERT's ablation",
    "none": "ConvBERT's ablation, as published in code",
}


def tables() -> list[Table]:
    """Position schemes, compatibilities, and mixers with feed-forwards: each a table of its own."""
    models = {spec: load_config(spec).model for spec in shipped_variants()}
    models["configs/convbert.py:convbert,medium_small"] = load_config("configs/convbert.py:convbert,medium_small").model
    return [_positions(models), _compatibilities(models), _mixers(models)]


def _positions(models: dict[str, ModelConfig]) -> Table:
    shipped = [model.positions for model in models.values()]
    alone = [PositionConfig(scheme=name) for name in ("none", *PARTS)]
    rows = []
    families = ["none", *PARTS]
    for positions in sorted(dict.fromkeys([*alone, *shipped]), key=lambda it: families.index(it.scheme.split("+")[0])):
        names = part_names(positions)
        reach = "relative" if is_relative(positions) else "absolute"
        limit = "max_length" if any(PARTS[name].has_table for name in names) else "none"
        source = "; ".join(PARTS[name].source for name in names) or "a bag of words"
        changed = dataclasses.replace(BASE, positions=positions)
        used = _used(models, lambda model, own=positions: model.positions == own)
        rows.append((describe_model(changed), source, reach if names else NOTHING, limit, *_costs(changed), used))
    columns = ("positions", "source", "kind", "limit")
    return _table("Position schemes: model.positions.", columns, rows)


def _compatibilities(models: dict[str, ModelConfig]) -> Table:
    shipped = [model.compatibility for model in models.values()]
    rows = []
    for kind in dict.fromkeys([*map(CompatibilityConfig, COMPATIBILITY_SOURCES), *shipped]):
        changed = dataclasses.replace(BASE, compatibility=kind)
        used = _used(models, lambda model, own=kind: model.compatibility == own)
        rows.append((_name(changed, "dot_product"), COMPATIBILITY_SOURCES[kind.name], *_costs(changed), used))
    return _table("Compatibilities: model.compatibility.", ("compatibility", "source"), rows)


def _mixers(models: dict[str, ModelConfig]) -> Table:
    mixers = [
        ModelConfig(),
        *(ModelConfig(mixer="mixed", convolution=ConvolutionConfig(k)) for k in CONVOLUTION_SOURCES),
    ]
    rows = []
    for mixer in dict.fromkeys(map(_mixer, [*mixers, *models.values()])):
        changed = dataclasses.replace(BASE, **dict(mixer))
        source = CONVOLUTION_SOURCES[changed.convolution.kind] if changed.mixer == "mixed" else "Vaswani et al. 2017"
        used = _used(models, lambda model, own=mixer: _mixer(model) == own)
        name = _name(changed, "attention")
        rows.append((f"mixed, {name}" if changed.mixer == "mixed" else name, source, *_costs(changed), used))
    return _table("Mixers and feed-forwards: model.mixer, model.convolution.", ("mixer", "source"), rows)


def _mixer(model: ModelConfig) -> tuple[tuple[str, Any], ...]:
    return tuple((name, getattr(model, name)) for name in ("mixer", "convolution", "feed_forward_groups"))


def _name(model: ModelConfig, plain: str) -> str:
    """What the model has beside its positions, which are none."""
    return describe_model(model).removeprefix("none").removeprefix(", ") or plain


def _costs(model: ModelConfig) -> tuple[str, str]:
    added = encoder_parameters(model) - encoder_parameters(BASE)
    return f"{added:+,}" if added else "0", f"{encoder_flops(model, LENGTH) / LENGTH / 1e6:,.2f}"


def _used(models: dict[str, ModelConfig], has: Callable[[ModelConfig], bool]) -> str:
    return _short(spec for spec, model in models.items() if has(model))


def _short(specs: Iterable[str]) -> str:
    """The specs "configs/tupe.py:bert_a" and "configs/tupe.py:tupe_a" as "tupe.py:bert_a|tupe_a"; more than three of a
    file are counted."""
    files: dict[str, list[str]] = {}
    for spec in specs:
        file, _, variant = spec.removeprefix("configs/").partition(":")
        files.setdefault(file, []).append(variant)
    for variants in files.values():  # another size of a variant that is there already says nothing new
        variants[:] = [v for v in variants if v.partition(",")[0] == v or v.partition(",")[0] not in variants]
    shown = [f"{file}:{'|'.join(v)}" if len(v) <= 3 else f"{file} ({len(v)} variants)" for file, v in files.items()]
    return " ".join(shown) or "-"


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    caption = (
        f"{title} Parameters: added to BERT-base (12 x 768, 12 heads, {BASE.vocab_size:,} words) without positions, "
        f"{encoder_parameters(BASE):,} with its embeddings. MFLOPs: millions of floating-point operations a word, "
        f"whole forward pass, rows of {LENGTH}, no head; counted in the traced program, not measured."
    )
    numbers = ("parameters", "MFLOPs a word")
    return Table(caption, (*columns, *numbers, "configs"), rows, numbers)
