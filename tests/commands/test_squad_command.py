"""`squad` at the command line."""

import subprocess
import sys

import pytest

from posenc_jax.__main__ import main
from posenc_jax.commands import squad

WORDS = ["--workdir", "run", "--train", "a.json", "--dev", "b.json"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        WORDS[:4],
        [*WORDS, "--version", "3"],
        [*WORDS, "--head", "big"],
        [*WORDS, "--epochs", "0"],
        [*WORDS, "--batch-size", "-1"],
        [*WORDS, "--learning-rate", "0"],
        [*WORDS, "--learning-rate", "nan"],
        [*WORDS, "--train-rows", "0"],
        [*WORDS, "--dev-rows", "x"],
        [*WORDS, "--stride", "0"],
        [*WORDS, "--seed", "-1"],
    ],
)
def test_what_cannot_be_meant_is_refused(words, capsys):
    with pytest.raises(SystemExit) as caught:
        squad.main(words)
    assert caught.value.code == 2


def test_a_workdir_that_is_not_there_is_one_sentence(tmp_path, capsys):
    code = main(["squad", "--workdir", str(tmp_path / "none"), "--train", "a.json", "--dev", "b.json"])
    assert code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: there is no folder") and error.count("\n") == 1


def test_help_imports_no_jax():
    check = (
        "import sys, contextlib, posenc_jax.commands.squad as c\n"
        "with contextlib.suppress(SystemExit): c.main(['--help'])\n"
        "assert 'jax' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--train-rows" in done.stdout
