"""What the notebooks share refuses in one sentence what it cannot do."""

import runpy
import sys

import pytest

from notebooks.pair import FOLDER


@pytest.fixture
def said(monkeypatch):
    """The lines that a notebook shows when `import arms` fails under these variables."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def said(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(Exception) as error:
            runpy.run_path(str(FOLDER / "arms.py"))
        return error.value._render_traceback_()

    return said


@pytest.mark.parametrize("value", ["yes", "2", "false"])
def test_fast_is_1_or_0(said, value):
    (line,) = said(FAST=value)
    assert line.startswith(f"FAST is '{value}': take 1")


def test_a_folder_that_cannot_be_written_is_named(said, tmp_path):
    (tmp_path / "file").write_text("")
    (line,) = said(FAST=0, NOTEBOOKS_OUT=tmp_path / "file" / "out")
    assert line.startswith(f"Nothing can be written to {tmp_path / 'file' / 'out'} (Not a directory)")
