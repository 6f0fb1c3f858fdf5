"""What a compiled program sends between devices: read from its text, by kind and mesh axes."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jax.sharding import Mesh

from posenc_jax.parallel.hlo import computations, trips

_OPERATION = re.compile(
    r"^\s*(?:ROOT )?%?\S+ = (?P<shape>.*?) "
    r"(?P<kind>all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-permute|collective-broadcast)"
    r"(?P<start>-start)?\("
)
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_BITS = re.compile(r"[a-z]+(\d+)")
_CALL = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_CALLS = re.compile(r"(?:branch_computations|called_computations)=\{([^}]*)\}")
_PIECE = re.compile(r"channel_id=(\d+),.*chain_id=")
"""TPU: one collective done piece by piece inside other operations, which each name it whole."""
_LISTED = re.compile(r"(?:replica_groups|source_target_pairs)=\{(\{[\d,{} ]*\})?\}")
_MESH = re.compile(r"replica_groups=mesh\[(.*?)\](?:, device_ids=\(([^{]*)\))? ?\{(.*?)\}")
_ORDER = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_AXIS = re.compile(r"'([^']+)'(?:=(\d+)|:\((\d+)\)(\d+))?")
_BETWEEN = re.compile(
    r" = \((?P<shape>[^ ]+), .*? send\(.*_xla_megascale_target=\"\{(?P<slices>[\d,:]+)\}"
    r".*_xla_megascale_transfer_type=\"(?P<kind>\w+)\""
)
"""TPU: what slices tell each other goes through the hosts."""
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)")


SLICES = "slices"
"""Stands for the axis of a mesh in what goes between slices, over the data center's network."""


class Collective(NamedTuple):
    """All operations of one kind over the same axes, in one run of the program."""

    kind: str
    """As XLA names it: "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute" ..."""
    axes: tuple[str, ...]
    """Mesh axes along which the devices of a group differ, or `SLICES` alone: of what meets along "data" the compiler
    makes sums within each slice, and one between them. ("?",) where the text does not say so readably."""
    group: int
    """Devices that take part in one (the largest group, where they differ)."""
    count: int
    """How often one runs."""
    bytes: int
    """Size of what is reduced, gathered or sent, whole as one device sees it before it is scattered or after it is
    gathered, summed over `count`. A ring moves (group - 1) / group of it out of each device, for an all-reduce twice
    that."""


def collectives(hlo_text: str, mesh: Mesh) -> list[Collective]:
    """The collectives of a compiled program (`compiled.as_text()`) for `mesh`, most bytes first.

    Bodies of loops count as often as they run where the compiler knows it, else once. A collective that starts and
    ends apart is one.
    """
    found: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(lambda: [0, 0, 0])
    seen: set[str] = set()
    for name, line, times in _runs(hlo_text):
        if between := _BETWEEN.search(line):
            total = found[between["kind"].lower().replace("_", "-"), (SLICES,)]
            total[0] = max(total[0], _count(between["slices"]))
            total[1] += times
            total[2] += times * _bytes(between["shape"], "send", False, 1)
            continue
        match, piece = _OPERATION.match(line), _PIECE.search(line)
        if not match or (piece and piece[1] in seen):
            continue
        if piece:
            seen.add(piece[1])
        kind, groups = match["kind"], _groups(line, mesh.size)
        size = max(map(len, groups), default=0)
        is_fused = kind == "all-reduce" and name.startswith("all-reduce-scatter")  # TPU, each device keeping a part
        total = found["reduce-scatter" if is_fused else kind, _axes(groups, mesh)]
        total[0] = max(total[0], size)
        total[1] += times
        total[2] += times * _bytes(match["shape"], kind, bool(match["start"]), size)
    table = [Collective(kind, axes, *total) for (kind, axes), total in found.items() if axes]
    return sorted(table, key=lambda row: (-row.bytes, row.kind, row.axes))


def _runs(hlo_text: str) -> Iterator[tuple[str, str, int]]:
    """Every line that runs, the name of the computation before it, and how often."""
    found, entry = computations(hlo_text)

    def run(name: str, times: int) -> Iterator[tuple[str, str, int]]:
        for line in found.get(name, ()):
            yield name, line, times
            if re.search(r" async-(update|done)\(", line):
                continue  # what was started is named again
            inner = times * trips(line, found) if " while(" in line else times
            called = _CALL.findall(line)
            called += [name.strip().lstrip("%") for names in _CALLS.findall(line) for name in names.split(",")]
            for name_called in called:
                yield from run(name_called, inner)

    yield from run(entry, 1)


def _groups(line: str, devices: int) -> list[list[int]]:
    """Devices that take part together, by their number in the mesh; [] where the line is not understood."""
    named, iota, listed = _MESH.search(line), _IOTA.search(line), _LISTED.search(line)
    if named:
        return _groups_of_named_axes(*named.groups())
    if iota:
        return _order(iota[2]).reshape(_numbers(iota[1])).tolist()
    if not listed:
        return []
    if not listed[1]:
        return [list(range(devices))]
    return [_numbers(group) for group in re.findall(r"\{([^{}]*)\}", listed[1])]


def _groups_of_named_axes(mesh: str, order: str | None, asked: str) -> list[list[int]]:
    """Groups along axes of a mesh of the compiler's own, "'a'=2,'b'=4" with its devices in the order "[4,2]T(1,0)":
    "'b'", or "'b':(2)2" for a part of "b", its 2 inner ones of 4."""
    axes = [(name, int(size)) for name, size, _, _ in _AXIS.findall(mesh)]
    parts = {name: (int(before or 1), int(size or dict(axes)[name])) for name, _, before, size in _AXIS.findall(asked)}
    shape, along = [], []
    for name, size in axes:
        before, taken = parts.get(name, (size, 1))
        along.append(len(shape) + 1)
        shape += [before, taken, size // (before * taken)]
    across = [axis for axis in range(len(shape)) if axis not in along]
    devices = _order(order) if order else np.arange(math.prod(shape))
    ids = devices.reshape(shape).transpose(across + along)
    return ids.reshape(-1, math.prod(shape[axis] for axis in along)).tolist()


def _order(text: str) -> np.ndarray:
    """Devices in the order "[4,2]T(1,0)", counted along [4, 2] and transposed; or as listed, "0,2,1,3"."""
    counted = _ORDER.fullmatch(text)
    if not counted:
        return np.array(_numbers(text))
    sizes = _numbers(counted[1])
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    return (ids.transpose(_numbers(counted[2])) if counted[2] else ids).ravel()


def _count(text: str) -> int:
    """Of the numbers in "1,2" or "1:4,7"."""
    return sum(int(last or first) - int(first) + 1 for first, last in re.findall(r"(\d+)(?::(\d+))?", text))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _axes(groups: list[list[int]], mesh: Mesh) -> tuple[str, ...]:
    """() where each group is one device, which sends nothing."""
    if not groups or max(max(group, default=0) for group in groups) >= mesh.size:
        return ("?",)
    sizes = tuple(mesh.shape.values())
    differ = np.zeros(len(sizes), bool)
    for group in groups:
        places = np.stack(np.unravel_index(group, sizes))
        differ |= (places != places[:, :1]).any(axis=1)
    return tuple(axis for axis, does in zip(mesh.axis_names, differ, strict=True) if does)


def _bytes(shape: str, kind: str, is_start: bool, group: int) -> int:
    arrays = [_size(*array) for array in _ARRAY.findall(shape)]
    if is_start and kind == "collective-permute":  # (given, got, two counters)
        arrays = arrays[1:2]
    elif is_start and kind != "all-reduce":  # (given ..., got ...)
        arrays = arrays[len(arrays) // 2 :]
    return sum(arrays) * (group if kind == "reduce-scatter" else 1)


def _size(dtype: str, sizes: str) -> int:
    bits = _BITS.match(dtype)
    width = int(bits[1]) if bits else 8 if dtype == "pred" else 0
    return math.prod(int(size) for size in sizes.split(",") if size) * width // 8
