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


def test_text_without_encoders_is_wrong_use(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["report", str(tmp_path), "--text", "my.txt", "--no-encoders"])
    assert caught.value.code == 2 and "--no-encoders" in capsys.readouterr().err


def test_what_cannot_be_read_or_written_is_one_sentence_before_anything_is_written(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    for out in (str(run / "config.json"), "/proc/none", ""):
        assert main(["report", str(run), "--no-encoders", "--out", out]) == 2
        assert f"--out {out!r} is no folder that files can go to" in capsys.readouterr().err
    assert main(["report", str(run), "--text", str(tmp_path / "nowhere.txt")]) != 0
    assert "nowhere.txt" in capsys.readouterr().err and sorted(tmp_path.rglob("*")) == before


def test_an_encoder_that_cannot_be_shown_is_told_on_the_terminal_too(tmp_path, capsys):
    assert main(["report", str(make_run(tmp_path / "run"))]) == 0
    assert "warning: the encoder of run cannot be shown: " in capsys.readouterr().err
