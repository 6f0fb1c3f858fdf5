"""Each notebook lies there twice, to be read and to be run; `make notebooks` runs them all."""

import json

import pytest

from notebooks.pair import FOLDER, paired, sources


def test_every_notebook_has_its_source():
    assert sorted(FOLDER.glob("*.ipynb")) == [source.with_suffix(".ipynb") for source in sources()]


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_notebook_is_what_its_source_makes(source):
    text = source.with_suffix(".ipynb").read_text("utf-8")
    assert text == paired(source), f"notebooks/{source.stem}.ipynb and .py differ: run python notebooks/pair.py"
    cells = json.loads(text)["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
