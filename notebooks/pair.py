"""Writes NN_name.ipynb of each NN_name.py: `python notebooks/pair.py`, which `make notebooks` runs first.

The .py files are the source (jupytext's percent format). The .ipynb has no outputs, and a cell is called by a digest
of its text, so that the same source always gives the same bytes.
"""

import hashlib
from collections import Counter
from pathlib import Path

import jupytext
import nbformat

FOLDER = Path(__file__).resolve().parent


def sources() -> list[Path]:
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def paired(source: Path) -> str:
    """The text of a notebook's .ipynb."""
    notebook = jupytext.read(source, fmt="py:percent")
    seen: Counter[str] = Counter()
    for cell in notebook.cells:
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        seen[digest] += 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    notebook.metadata = nbformat.from_dict(
        {
            "jupytext": {"formats": "ipynb,py:percent"},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


if __name__ == "__main__":
    for source in sources():
        source.with_suffix(".ipynb").write_text(paired(source), "utf-8")
