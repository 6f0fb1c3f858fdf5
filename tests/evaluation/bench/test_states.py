"""The bench of hidden states counts what it read, and says when there is less than was asked for."""

import json

import numpy as np
import pytest

from posenc_jax.commands import bench
from posenc_jax.errors import UserError
from tests.tiny_workdirs import sentences, write_workdir


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    lines = [f"{line.capitalize()} the end of it." for line in sentences(80, 1)]
    (folder / "text.txt").write_text("\n\n".join("\n".join(lines[n : n + 20]) for n in range(0, 80, 20)))
    return write_workdir(folder / "run")


def test_it_reads_a_tenth_a_third_and_all_of_the_sentences(workdir, capsys):
    words = ["states", "--workdir", str(workdir), "--source", f"text:{workdir.parent / 'text.txt'}"]
    file = workdir.parent / "facts.json"
    assert bench.main([*words, "--sentences", "60", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines() if "sentences  " in line and line.endswith(" s")] == [
        "6", "20", "60"
    ]  # fmt: skip
    tokens = [one["tokens"] for one in json.loads(file.read_text())["runs"]]
    assert len(tokens) == 3 and np.all(np.diff(tokens) > 0)


def test_too_little_text_is_one_sentence(workdir):
    words = ["states", "--workdir", str(workdir), "--source", f"text:{workdir.parent / 'text.txt'}"]
    with pytest.raises(UserError, match=r"text\.txt has 80 sentences, and 500 were asked for; add text$"):
        bench.main([*words, "--sentences", "500"])
