"""What a program compiled for a TPU reads and writes in the chip's main memory (HBM), read from its text.

`cost_analysis()` does not say it: it counts what lies in VMEM too, and for a Pallas kernel what its author declared.
"""

import math
import re
from typing import NamedTuple

from posenc_jax.parallel.hlo import computations, trips

_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\](?:\{([^}]*)\})?")
_LAYOUT = re.compile(r"^([\d,]*)(?::((?:[A-Z]+\([^()]*\)|\([^()]*\))*))?$")
_TILES = re.compile(r"T((?:\([\d,*]*\))+)")
_SPACE = re.compile(r"S\((\d+)\)")
_BITS = re.compile(r"[a-z]+(\d+)")
_NAMES = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|to_apply|body)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}|true_computation=%?([\w.\-]+), false_computation=%?([\w.\-]+)")

_MOVES_NOTHING = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "add-dependency",
    "partition-id", "replica-id", "domain", "get-dimension-size",
}  # fmt: skip
_PARTS = {"slice", "dynamic-slice", "gather"}
"""What reads no more of its first operand than it returns."""


class Array(NamedTuple):
    bytes: int
    """As it lies in memory, padded to whole tiles."""
    in_hbm: bool


class Instruction(NamedTuple):
    name: str
    arrays: list[Array]
    """Its result's."""
    opcode: str
    operands: list[str]
    line: str

    @property
    def hbm(self) -> int:
        return sum(array.bytes for array in self.arrays if array.in_hbm)


Computation = dict[str, Instruction]


def hbm_bytes(hlo_text: str) -> int:
    """Bytes that one run of an optimised TPU program (`compiled.as_text()`) reads and writes in HBM, on one device.

    Each instruction that runs reads its operands once and writes its results once, padded to the tiles of their
    layouts; what lies in VMEM or SMEM (memory spaces S(1), S(2) ...) costs nothing. Bodies of loops count as often as
    they run where the text says it, else once; of a conditional's branches the dearest one counts. A slice or a
    gather, inside a fusion too, reads what it returns; an update in place reads and writes what is new. A custom call,
    so a Pallas kernel, counts as any instruction: a block that its grid fetches twice is counted once.
    """
    found, entry = computations(hlo_text)
    parsed = {name: _computation(lines) for name, lines in found.items()}

    def total(name: str) -> int:
        inside = parsed.get(name, {})
        return sum(cost(instruction, inside) for instruction in inside.values())

    def cost(instruction: Instruction, inside: Computation) -> int:
        opcode, line = instruction.opcode, instruction.line
        branches = _BRANCHES.search(line) if opcode == "conditional" else None
        if branches:
            return max(map(total, filter(None, [*_split(branches[1]), branches[2], branches[3]])))
        called = _CALLED.search(line)
        if called and opcode == "while":
            return total(called[1]) * trips(line, found)
        if called and opcode in ("call", "async-start"):
            return total(called[1])
        if called and opcode == "fusion":
            return _fusion(instruction, inside, called[1], parsed)
        return _plain(instruction, inside)

    return total(entry)


def _plain(instruction: Instruction, inside: Computation) -> int:
    opcode = instruction.opcode
    if opcode in _MOVES_NOTHING or opcode.endswith(("-done", "-update")) or "ConcatBitcast" in instruction.line:
        return 0
    sources = [inside[name] for name in instruction.operands if name in inside]
    if opcode == "dynamic-update-slice":
        update = sources[1]
        return update.hbm + (sum(array.bytes for array in update.arrays) if instruction.hbm else 0)
    if opcode == "scatter":
        return 2 * sources[-1].hbm + sources[1].hbm + sources[-1].hbm
    opcode, starts = opcode.removesuffix("-start"), opcode.endswith("-start")
    arrays = list(instruction.arrays)
    if starts and opcode != "all-reduce":  # (what is given, what comes, counters)
        for source in sources:
            for array in source.arrays:
                if array in arrays:
                    arrays.remove(array)
    written = sum(array.bytes for array in arrays if array.in_hbm)
    if opcode in _PARTS:
        return written + (arrays[0].bytes if sources[0].hbm else 0) + sum(source.hbm for source in sources[1:])
    return written + sum(source.hbm for source in sources)


def _fusion(fusion: Instruction, inside: Computation, called: str, parsed: dict[str, Computation]) -> int:
    read = 0
    for place, name in enumerate(fusion.operands):
        source = inside.get(name)
        if source is not None and source.hbm:
            part = _part_read(place, parsed.get(called, {}), parsed)
            read += source.hbm if part is None else min(part, source.hbm)
    return read + _written(fusion, parsed.get(called, {}))


def _part_read(place: int, body: Computation, parsed: dict[str, Computation]) -> int | None:
    """Bytes that a fusion reads of its parameter number `place`; None: all."""
    total, results = 0, {root.name for root in _results(body)}
    names = [one.name for one in body.values() if one.opcode == "parameter" and f" parameter({place})" in one.line]
    while names:
        name = names.pop()
        if name in results:
            return None
        for user in body.values():
            if name not in user.operands:
                continue
            is_source = user.operands[0] == name and user.operands.count(name) == 1
            if user.opcode == "bitcast":
                names.append(user.name)
            elif is_source and user.opcode in _PARTS:
                total += sum(array.bytes for array in user.arrays)
            elif is_source and user.opcode == "dynamic-update-slice" and user.name in results:
                continue
            elif user.opcode == "fusion" and user.operands.count(name) == 1:
                inner = parsed.get(_CALLED.search(user.line)[1], {})
                part = _part_read(user.operands.index(name), inner, parsed)
                if part is None:
                    return None
                total += part
            elif user.opcode != "tuple":
                return None
    return total


def _written(fusion: Instruction, body: Computation) -> int:
    """Bytes: of each result all, or what is new where it is an update in place."""
    results = _results(body)
    if len(results) != len(fusion.arrays):
        return fusion.hbm
    total = 0
    for result, array in zip(results, fusion.arrays, strict=True):
        if result.opcode == "dynamic-update-slice" and result.operands[1] in body:
            array = array._replace(bytes=sum(update.bytes for update in body[result.operands[1]].arrays))
        total += array.bytes if array.in_hbm else 0
    return total


def _results(body: Computation) -> list[Instruction]:
    """What makes each result of a computation, bitcasts looked through."""
    roots = [one for one in body.values() if one.line.lstrip().startswith("ROOT ")]
    if roots and roots[0].opcode == "tuple":
        roots = [body[name] for name in roots[0].operands if name in body]
    for place, root in enumerate(roots):
        while root.opcode == "bitcast" and root.operands[0] in body:
            root = body[root.operands[0]]
        roots[place] = root
    return roots


def _computation(lines: list[str]) -> Computation:
    found = (_instruction(line) for line in lines)
    return {instruction.name: instruction for instruction in found if instruction}


def _instruction(line: str) -> Instruction | None:
    left, equals, right = line.strip().removeprefix("ROOT ").partition(" = ")
    if not equals:
        return None
    cut = _closing(right) + 1 if right.startswith("(") else right.index(" ")
    opcode, _, rest = right[cut:].strip().partition("(")
    operands = _NAMES.findall(rest[: _closing("(" + rest) - 1])
    arrays = [_array(*match.groups()) for match in _ARRAY.finditer(right[:cut])]
    return Instruction(left.lstrip("%"), arrays, opcode, operands, line)


def _closing(text: str) -> int:
    """Where the parenthesis closes with which `text` begins."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return place
    return len(text)


def _array(dtype: str, sizes: str, layout: str | None) -> Array:
    """Tiles in turn cut the most minor axes, each rounded up to whole tiles: "{1,0:T(8,128)(2,1)}"."""
    order, how = (_LAYOUT.match(layout or "") or _LAYOUT.match("")).groups()
    lengths = [int(size.lstrip("<=")) for size in sizes.split(",") if size]
    minor_first = [int(axis) for axis in order.split(",") if axis] or list(reversed(range(len(lengths))))
    physical = [lengths[axis] for axis in reversed(minor_first)] if len(minor_first) == len(lengths) else lengths
    tiles = _TILES.search(how or "")
    for tile in re.findall(r"\(([\d,]*)\)", tiles[1]) if tiles else ():
        cuts = [int(cut) for cut in tile.split(",") if cut]
        physical = [1] * (len(cuts) - len(physical)) + physical
        kept = len(physical) - len(cuts)
        rounded = [-(-size // cut) for size, cut in zip(physical[kept:], cuts, strict=True)]
        physical = physical[:kept] + rounded + cuts
    space = _SPACE.search(how or "")
    bits = _BITS.match(dtype)
    width = int(bits[1]) if bits else 8 if dtype == "pred" else 0
    return Array(math.prod(physical) * width // 8, not space or space[1] == "0")


def _split(names: str | None) -> list[str]:
    return [name.strip().lstrip("%") for name in (names or "").split(",") if name.strip()]
