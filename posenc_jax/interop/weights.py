"""Tensors of a Hugging Face file <-> our tree of parameters, by the family's table; nothing is dropped in silence."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from posenc_jax.config import ModelConfig
from posenc_jax.errors import UserError
from posenc_jax.interop.layouts import LAYOUTS, their_shape
from posenc_jax.interop.names import BUFFERS, Entry, Family
from posenc_jax.interop.shapes import abstract_params

FINE_TUNED = ("classifier.", "qa_outputs.", "sequence_summary.", "summary.", "logits_proj.")

Tensors = dict[str, np.ndarray]


def to_params(
    tensors: Mapping[str, np.ndarray], family: Family, model: ModelConfig, classes: Sequence[str], origin: str
) -> dict[str, Any]:
    """The tree {"encoder", and what heads there are} of float32 arrays, from tensors under their keys.

    `classes` are the config's `architectures`, whose heads must be there; `origin` names the file in errors. Raises
    `UserError` that lists every missing and left-over key, or names a key whose shape differs, or two tensors that
    should be one and differ.
    """
    tensors = _canonical(tensors, family, origin)
    present = {entry.group for entry in family.entries if _keys(entry, 1)[0] in tensors}
    present |= {
        group for name in classes for end, needed in family.required.items() if name.endswith(end) for group in needed
    }
    groups = [
        group for group in ("encoder", "head", "rtd_head", "pooler", "next_sentence") if group in present | {"encoder"}
    ]
    shapes = flatten_dict(abstract_params(model, groups), sep="/")
    entries = [entry for entry in family.entries if entry.ours in shapes]
    wanted = [key for entry in entries for key in _keys(entry, model.layers)]
    _check_keys(wanted, tensors, family, origin)
    params = {}
    for entry in entries:
        shape = shapes[entry.ours].shape
        found = [
            _ours(tensors[key], key, entry.layout, shape[entry.stacked :], origin) for key in _keys(entry, model.layers)
        ]
        params[entry.ours] = np.stack(found) if entry.stacked else found[0]
    return unflatten_dict(params, sep="/")


def to_tensors(params: Mapping[str, Any], family: Family) -> Tensors:
    """Contiguous arrays under the keys of the family's class that holds these groups.

    Every parameter must have a line in the table (`plain.to_plain` sees to that).
    """
    flat = flatten_dict(dict(params), sep="/")
    table = {entry.ours: entry for entry in family.entries}
    prefix = f"{family.name}." if set(params) - {"encoder", "pooler"} else ""
    tensors = {}
    for path, array in flat.items():
        entry, array = table[path], np.asarray(array)
        parts = list(array) if entry.stacked else [array]
        for key, part in zip(_keys(entry, len(parts)), parts, strict=True):
            start = prefix if entry.theirs.startswith("@") else ""
            tensors[start + key] = np.ascontiguousarray(LAYOUTS[entry.layout].to_theirs(part))
    return tensors


def _keys(entry: Entry, layers: int) -> list[str]:
    """Keys without the family's prefix, one a layer."""
    key = entry.theirs.removeprefix("@")
    return [key.replace("#", str(layer)) for layer in range(layers)] if entry.stacked else [key]


def _canonical(tensors: Mapping[str, np.ndarray], family: Family, origin: str) -> Tensors:
    """Keys without prefix, norms in today's names, without buffers; what is tied once."""
    found: Tensors = {}
    for key, array in tensors.items():
        name = key.removeprefix(f"{family.name}.")
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))
        if name in BUFFERS:
            continue
        if name in found:
            raise UserError(
                f"{origin} holds {name} twice, with and without {family.name!r} before it or in an old name"
            )
        found[name] = array
    for copy, source in family.tied.items():
        if copy in found:
            array = found.pop(copy)
            if not np.array_equal(found.setdefault(source, array), array):
                raise UserError(
                    f"{origin} holds a {copy} that differs from {source}; here the two are one, so this model cannot "
                    "be held"
                )
    return found


def _check_keys(wanted: Sequence[str], tensors: Tensors, family: Family, origin: str) -> None:
    missing, left = [key for key in wanted if key not in tensors], sorted(tensors.keys() - set(wanted))
    told = []
    if missing:
        told.append(f"lacks {shortened(missing)}")
    if left:
        told.append(f"holds {shortened(left)}, which {family.label} with this config.json has no place for")
    if not told:
        return
    mend = ""
    if any(key.startswith(FINE_TUNED) for key in left):
        mend = "; heads of a fine-tuning are not kept: save the bare model, `model.base_model.save_pretrained(...)`"
    raise UserError(f"{origin} {' and '.join(told)}{mend}")


def shortened(keys: Iterable[str]) -> str:
    """All keys, those of several layers as one: "encoder.layer.{0-11}.output.dense.bias"."""
    layers: dict[str, list[int]] = defaultdict(list)
    for key in keys:
        number = re.search(r"(?<=\.layer\.)\d+(?=\.)", key)
        layers[key if number is None else f"{key[: number.start()]}#{key[number.end() :]}"].extend(
            [] if number is None else [int(number[0])]
        )
    return ", ".join(key.replace("#", _ranges(sorted(numbers))) for key, numbers in layers.items())


def _ranges(numbers: list[int]) -> str:
    """[3] -> "3"; [0, 1, 2, 5] -> "{0-2,5}"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return text if len(numbers) == 1 else f"{{{text}}}"


def _ours(array: np.ndarray, key: str, layout: str, shape: tuple[int, ...], origin: str) -> np.ndarray:
    wanted = their_shape(layout, shape)
    if array.shape != wanted:
        raise UserError(
            f"{origin}: {key} has the shape {list(array.shape)}, and by config.json it must have {list(wanted)}"
        )
    return np.ascontiguousarray(LAYOUTS[layout].to_ours(array, shape))
