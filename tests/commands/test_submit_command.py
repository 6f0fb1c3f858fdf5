"""`submit` at the command line."""

import numpy as np
import pytest

from posenc_jax.__main__ import main
from posenc_jax.evaluation.glue.scores import write_predictions, write_record
from tests.evaluation.glue.score_records import record


def test_submit_says_what_it_wrote_and_from_which_run(tmp_path, capsys):
    run = record("WNLI", 0.5634, seed=4, rate=3e-4, protocol="quick", start="step 20")
    write_record(tmp_path, run | {"id": "one"})
    write_predictions(tmp_path, "one", {"test": np.arange(146, dtype=np.float32) % 2})
    words = ["submit", "--workdir", str(tmp_path), "--out", str(tmp_path / "glue.zip")]
    assert main(words) == 1
    assert "error: " in capsys.readouterr().err and not (tmp_path / "glue.zip").exists()
    assert main([*words, "--partial"]) == 0
    out = capsys.readouterr().out
    for part in ("WNLI.tsv", "56.34", "learning rate 0.0003, seed 4", "left out: CoLA", "complete submissions only"):
        assert part in out


@pytest.mark.parametrize("words", [[], ["--workdir", "run"], ["--out", "glue.zip"]])
def test_submit_refuses_what_cannot_be_meant(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["submit", *words])
    assert caught.value.code == 2
