"""A notebook that lies there as .ipynb is what its source makes; a source alone is a draft that nothing runs yet."""

import json

import pytest

from notebooks.pair import FOLDER, paired


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.ipynb")))
def test_a_notebook_is_what_its_source_makes(name):
    text = (FOLDER / f"{name}.ipynb").read_text("utf-8")
    assert text == paired(FOLDER / f"{name}.py"), f"{name}.ipynb and .py differ: run python notebooks/pair.py"
    cells = json.loads(text)["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
