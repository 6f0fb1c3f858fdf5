"""The command: exit codes, one sentence an error, plain lines where there is no terminal."""

import subprocess
import sys
import time
from pathlib import Path

import pytest


def run(*arguments, **kwargs):
    command = [sys.executable, "-m", "posenc_jax", "prepare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], **kwargs)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("\n\n".join(f"This is the text of document {n}. It has two sentences." for n in range(200)))
    return file


def test_the_line_of_the_readme_works_and_works_again(text, tmp_path):
    line = ("--source", f"text:{text}", "--out", tmp_path / "rows", "--vocab-size", 45, "--length", 32, "--workers", 1)
    first = run(*line)
    assert (first.returncode, first.stderr) == (0, "")
    assert "documents: 200, 4 of them held out" in first.stdout and "tokenizing and packing 100 %" in first.stdout
    second = run(*line)
    assert second.returncode == 0 and "is finished already; nothing to do" in second.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["--source", "text:/nowhere/at.txt", "--out", "{out}"],
            1,
            "error: there is no file or folder /nowhere/at.txt",
        ),
        (["--source", "nothing", "--out", "{out}"], 2, "error: a source starts with"),
        (
            ["--source", "text:{text}", "--out", "{out}"],
            2,
            "error: a vocabulary of 8192 is larger than the text allows",
        ),
        (["--source", "text:{text}", "--out", "{text}"], 1, "is a file; name a folder"),
        (["--source", "text:{text}"], 2, "--out"),
        (["--source", "text:{text}", "--out", "{out}", "--packing", "tight"], 2, "invalid choice"),
    ],
)
def test_errors_are_one_sentence_with_the_right_code(arguments, code, sentence, text, tmp_path):
    done = run(*(word.format(text=text, out=tmp_path / "out") for word in arguments))
    assert done.returncode == code and sentence in done.stderr and "Traceback" not in done.stderr


def test_help_is_quick():
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        assert run("--help").returncode == 0
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.5
