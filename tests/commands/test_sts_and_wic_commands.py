"""`sts` and `wic` at the command line: tables on the terminal, wrong use ends with 2."""

import pytest

from posenc_jax.__main__ import main
from tests.tiny_workdirs import write_workdir


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return str(write_workdir(tmp_path_factory.mktemp("original") / "run"))


@pytest.mark.parametrize(
    "words",
    [
        ["sts"],
        ["sts", "--workdir", "run"],
        ["sts", "--workdir", "run", "--data", "d", "--layers", "first"],
        ["sts", "--workdir", "run", "--data", "d", "--layers", "-1"],
        ["sts", "--workdir", "run", "--data", "d", "--split", "validation"],
        ["sts", "--workdir", "run", "--data", "d", "--clip", "5;6"],
        ["sts", "--workdir", "run", "--data", "d", "--clip", "5", "--transform", "center"],
        ["wic", "--workdir", "run", "--data", "d", "--transform", "whiten"],
        ["wic", "--workdir", "run"],
        ["wic", "--workdir", "run", "--data", "d", "--split", "all"],
    ],
)
def test_what_cannot_be_meant_is_refused(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2


def test_sts_prints_its_tables(run, tmp_path, capsys):
    (tmp_path / "STS13").mkdir()
    lines = ["1.0\tthe dog runs .\ta dog sees the river", "4.0\ta man\tthe man", "2\tthe old house\ta bank"]
    (tmp_path / "STS13" / "FNWN.test.tsv").write_text("\n".join(lines) + "\n")
    assert main(["sts", "--workdir", run, "--data", str(tmp_path), "--layers", "1"]) == 0
    printed = capsys.readouterr()
    assert "FNWN" in printed.out and "best on these same scores" in printed.out and "report.md" in printed.out
    assert "STS13 lacks OnWN, SMT, headlines." in " ".join(printed.out.split())
    assert printed.err == "STS13: 3 pairs, 1 of 1 sets done\n"
    assert main(["sts", "--workdir", run, "--data", str(tmp_path), "--layers", "1", "--clip", "5,7"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "STS13, raw STS13, changed" in printed and "(clip 5,7): dimensions 5, 7 are set to 0" in printed
    assert main(["sts", "--workdir", run, "--data", str(tmp_path), "--clip", "99"]) == 2
    assert main(["sts", "--workdir", run, "--data", str(tmp_path), "--layers", "9"]) == 2
    assert main(["sts", "--workdir", run, "--data", str(tmp_path / "STS13")]) == 1
    assert "holds no test split" in capsys.readouterr().err


def test_wic_prints_its_tables(run, tmp_path, capsys):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "train.data.txt").write_text("dog\tN\t1-1\tthe dog runs .\ta dog sees the river\n")
    (tmp_path / "train" / "train.gold.txt").write_text("T\n")
    assert main(["wic", "--workdir", run, "--data", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "always the same sense" in printed.out and "nothing held out" in " ".join(printed.out.split())
    assert "not held out" in printed.out
    assert main(["wic", "--workdir", run, "--data", str(tmp_path), "--transform", "standardize"]) == 0
    assert "McNemar's exact two-sided p" in " ".join(capsys.readouterr().out.split())
    assert main(["wic", "--workdir", run, "--data", str(tmp_path), "--split", "dev"]) == 1
    assert "dev.data.txt" in capsys.readouterr().err
