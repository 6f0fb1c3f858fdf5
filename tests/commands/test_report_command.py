"""`report` at the command line: the page beside the tables; wrong use ends with 2."""

import pytest

from posenc_jax.__main__ import main
from tests.evaluation.test_report import make_run


def test_report_writes_the_page_and_the_tables(tmp_path, capsys):
    run = make_run(tmp_path / "a <b>")
    assert main(["report", str(run), "--out", str(tmp_path / "out"), "--no-encoders"]) == 0
    printed = capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "report.md", "curves.png"}
    assert "report.html" in printed and "5.000" in printed
    page = (tmp_path / "out" / "report.html").read_text()
    assert "a &lt;b&gt;" in page and "--no-encoders</code>" in page


def test_text_that_is_not_there_is_told_and_the_tables_stay(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    assert main(["report", str(run), "--text", str(tmp_path / "gone.txt")]) == 1
    assert "gone.txt" in capsys.readouterr().err
    assert (run / "report.md").exists() and not (run / "report.html").exists()


def test_text_without_encoders_is_wrong_use(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["report", str(tmp_path), "--text", "my.txt", "--no-encoders"])
    assert caught.value.code == 2 and "--no-encoders" in capsys.readouterr().err
