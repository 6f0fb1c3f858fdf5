"""The text of a compiled program (`compiled.as_text()`), taken apart."""

import re

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_TRIPS = re.compile(r'known_trip_count"?[:=]\s*\{"n":"(\d+)"')
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")


def computations(hlo_text: str) -> tuple[dict[str, list[str]], str]:
    """The lines of each computation by its name, and the name of the one that runs first ("" where there is none)."""
    found: dict[str, list[str]] = {}
    entry, lines = "", None
    for line in hlo_text.splitlines():
        head = _COMPUTATION.match(line)
        if head:
            lines = found.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif lines is not None:
            lines.append(line)
    return found, entry


def trips(line: str, found: dict[str, list[str]]) -> int:
    """How often the body of a loop runs: as its line says, or as its condition does, by comparing a counter from 0;
    1 where neither does."""
    said, condition = _TRIPS.search(line), _CONDITION.search(line)
    if said:
        return int(said[1])
    text = "\n".join(found.get(condition[1] if condition else "", ()))
    limit = re.search(r"compare\([^,]*, %?([\w.\-]+)\), direction=LT", text)
    value = re.search(rf"%?{re.escape(limit[1])} = s32\[\]\S* constant\((\d+)\)", text) if limit else None
    return int(value[1]) if value else 1
