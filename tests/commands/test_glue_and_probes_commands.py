"""`glue` and `probes` at the command line: wrong use ends with 2, and before any work."""

import pytest

from posenc_jax.commands import glue, probes
from posenc_jax.data.task_files import load_split
from posenc_jax.data.tasks import TASKS
from posenc_jax.errors import UsageError
from posenc_jax.evaluation.glue.protocols import PROTOCOLS

GLUE = ["--workdir", "run", "--data", "data", "--tasks", "CoLA"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        GLUE[:4],
        [*GLUE, "--seeds", "0"],
        [*GLUE, "--epochs", "none"],
        [*GLUE, "--batch-size", "-1"],
        [*GLUE, "--learning-rate", "0"],
        [*GLUE, "--learning-rate", "nan"],
        [*GLUE, "--learning-rate", "1e-3,x"],
        [*GLUE, "--learning-rate", "1e-3,-1"],
        [*GLUE, "--jobs", "0"],
        [*GLUE[:4], "--tasks", " , "],
    ],
)
def test_glue_refuses_what_cannot_be_meant(words, capsys):
    with pytest.raises(SystemExit) as caught:
        glue.main(words)
    assert caught.value.code == 2


def test_the_help_of_glue_names_every_protocol(capsys):
    assert glue.PROTOCOLS == ", ".join(PROTOCOLS)
    with pytest.raises(UsageError, match=r"no protocol 'elektra'.*did you mean 'electra'"):
        glue.main([*GLUE, "--protocol", "elektra"])


@pytest.mark.parametrize("words", [["--rows", "3"], ["--dev-rows", "0"], ["--seed", "x"]])
def test_probes_refuses_what_cannot_be_meant(words, capsys):
    with pytest.raises(SystemExit) as caught:
        probes.main(["--source", "docstrings:", "--out", "probes", *words])
    assert caught.value.code == 2


def test_probes_writes_both_tasks_from_a_text_file(tmp_path, capsys):
    text = "\n\n".join(
        "\n".join(f"The {a} {b} goes {c} home today." for c in ("slowly", "gladly", "never", "often", "always", "soon"))
        for a in ("old", "young", "tall", "small")
        for b in ("farmer", "teacher", "dog", "horse", "river", "child")
    )
    (tmp_path / "text.txt").write_text(text)
    words = ["--source", f"text:{tmp_path}/text.txt", "--out", str(tmp_path / "out"), "--rows", "40", "--dev-rows", "8"]
    assert probes.main(words) == 0
    printed = capsys.readouterr().out
    for task in ("order", "next"):
        assert f"{task}: 40 train rows, 8 dev rows" in printed
        assert [len(load_split(tmp_path / "out", TASKS[task], split)) for split in ("train", "dev")] == [40, 8]
