"""Markup out of strings: what comes from data is escaped, and only `Html` is not."""

import html
import re
from collections.abc import Iterable, Sequence

from posenc_jax.evaluation.tables import Table

LONGEST = 24
"""Characters of a line's name that is not broken."""
_VOID = frozenset({"br", "img", "link", "meta"})


class Html(str):
    """Markup that is escaped already."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as it is read, or markup unchanged."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(parts: Iterable[object]) -> Html:
    return Html("".join(text(part) for part in parts))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """<name attributes>children</name>. An attribute that is None is left out; `class_` is spelled with an underscore
    behind, any other underscore is a hyphen: `aria_label`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>" + ("" if name in _VOID else f"{join(children)}</{name}>"))


def prose(sentence: str) -> Html:
    """Sentences in which words between `backticks` are code."""
    parts = re.split(r"`([^`]*)`", sentence)
    return join(element("code", part) if number % 2 else part for number, part in enumerate(parts))


def absent(sentence: str) -> Html:
    """What stands in the place of a part that cannot be had."""
    return element("p", prose(sentence), class_="absent")


def slug(name: str) -> str:
    """A word for an id or an address: letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "part"


def table(title: str, content: Table) -> Html:
    """A table that scrolls by itself where it is wider than the page; `title` heads it, its own caption explains it."""
    flush = ["n" if column in content.numbers else None for column in content.columns]
    head = [
        element("th", column, scope="col", class_=kind) for column, kind in zip(content.columns, flush, strict=True)
    ]
    rows = [element("tr", *_cells(row, flush)) for row in content.rows]
    return _scrolling(
        title,
        element(
            "table",
            element("caption", title),
            element("thead", element("tr", *head)),
            element("tbody", *rows),
        ),
        content.caption,
    )


def _cells(row: Sequence[str], flush: Sequence[str | None]) -> list[Html]:
    first, *others = row
    whole = "whole" if len(first) <= LONGEST else None
    cells = [element("td", cell, class_=kind) for cell, kind in zip(others, flush[1:], strict=True)]
    return [element("th", first, scope="row", class_=flush[0] or whole), *cells]


def _scrolling(title: str, content: Html, note: str) -> Html:
    box = element("div", content, class_="scroll", role="region", aria_label=title, tabindex="0")
    return element("div", box, element("p", prose(note), class_="note") if note else "", class_="table")


def listing(lines: Sequence[str]) -> Html:
    return element("ul", *(element("li", prose(line)) for line in lines)) if lines else Html("")


def code_block(source: str, label: str) -> Html:
    return element("pre", element("code", source), tabindex="0", aria_label=label)


def folded(summary: object, *children: object) -> Html:
    """Details that open at a click; paper shows them open."""
    return element("details", element("summary", summary), *children)
