"""Tables for the terminal and for Markdown, with a caption that says what their numbers are."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from posenc_jax.data.rows import write_whole

REPORT_FILE = "report.md"
NOTHING = "-"
"""In a cell that has no value."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells as text, and a caption that says what they are."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()
    """Columns set flush right."""

    def markdown(self) -> str:
        """Caption and table for a file."""
        marks = ["---:" if name in self.numbers else "---" for name in self.columns]
        cells = [[cell.replace("|", r"\|") for cell in row] for row in self.rows]
        lines = ["| " + " | ".join(row) + " |" for row in (self.columns, marks, *cells)]
        return "\n".join([self.caption, "", *lines])

    def show(self) -> None:
        """Prints the table on the terminal; where there is none, columns keep their width."""
        from rich import box, console, table

        out = console.Console()
        if not out.is_terminal:
            out = console.Console(width=180)
        grid = table.Table(box=box.SIMPLE_HEAD)
        for name in self.columns:
            grid.add_column(name, justify="right" if name in self.numbers else "left")
        for row in self.rows:
            grid.add_row(*(cell.replace("[", r"\[") for cell in row))
        out.print(grid)
        out.print(self.caption, markup=False, highlight=False)


def write_sections(path: Path, sections: Mapping[str, str]) -> None:
    """Puts "## HEADING" sections into a Markdown file, in place of earlier ones; what else the file says stays."""
    text = path.read_text("utf-8") if path.exists() else f"# {path.absolute().parent.name}\n"
    for heading, body in sections.items():
        head, _, rest = text.partition(f"## {heading}\n")
        after = rest[rest.index("\n## ") + 1 :] if "\n## " in rest else ""
        text = "\n\n".join(part for part in (head.rstrip(), f"## {heading}\n\n{body}", after.strip()) if part) + "\n"
    write_whole(path, text)
