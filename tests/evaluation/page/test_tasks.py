"""Scores of `squad`, `sts` and `wic` side by side, raw and changed, as their records have them."""

import dataclasses
import json

import numpy as np
import pytest

from posenc_jax.config import Config
from posenc_jax.errors import UserError
from posenc_jax.evaluation.page.tasks import squad_part, sts_part, wic_part
from posenc_jax.evaluation.runs import Run
from posenc_jax.evaluation.similarity.sts import combine
from posenc_jax.evaluation.similarity.wic import RULES, score_splits
from tests.evaluation.page.test_html import Reader

RNG = np.random.default_rng(0)
SCORES_N, COSINES_NxE = np.arange(12.0), RNG.normal(size=(12, 2)) / 9
COSINES_NxE[:, 0] += SCORES_N
STS = {
    "encoder": "step 20 (ab)", "split": "dev", "specials": False, "layers": ["0", "1"], "absent": {},
    "notes": ["a note"],
    "sets": [{"set": "STS-B", "data": "x", "missing": [], **combine({"dev": (SCORES_N, COSINES_NxE)})[0]}],
}  # fmt: skip
CHANGED = {
    **STS, "change": {"name": "clip 5", "what": "dimension 5 set to 0"}, "plain": STS["sets"],
    "sets": [{**STS["sets"][0], **combine({"dev": (SCORES_N, COSINES_NxE[:, ::-1])})[0]}],
}  # fmt: skip
SAME_OF = {"train": SCORES_N > 6, "dev": SCORES_N[:4] > 1}
WIC = {
    "encoder": "step 20 (ab)", "split": "train", "layers": ["0", "1"], "data": {}, "notes": [],
    **score_splits({"train": COSINES_NxE, "dev": COSINES_NxE[:4]}, SAME_OF, "train"),
}  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    return [Run(name, tmp_path / name, Config(), [], {}, []) for name in ("a", "b")]


def keep(run, command, records):
    folder = run.workdir / command
    folder.mkdir(parents=True)
    (folder / "scores.json").write_text(json.dumps(records))


def lines(markup, table=0):
    """The cells of the lines of a table."""
    body = markup.split("<tbody>")[1 + table].split("</tbody>")[0]
    return [[Reader(cell).said for cell in row.split("</th>")[:1] + row.split("</th>")[1].split("</td>")[:-1]]
            for row in body.split("<tr>")[1:]]  # fmt: skip


def test_sts_has_a_line_a_run_and_set_and_every_layer_below(runs):
    keep(runs[0], "sts", [STS])
    keep(runs[1], "sts", [STS])
    shown = sts_part(runs)
    last, best = (f"{STS['sets'][0]['mean']['spearman'][place]:.2f}" for place in (1, 0))
    cells = ["step 20 (ab)", "STS-B", "dev", "out", "as they are", "12", last, best, "0"]
    assert lines(shown) == [["a", *cells], ["b", *cells]] and float(best) > float(last)
    assert len(Reader(shown).all("details")) == 2 and "a note" in Reader(shown).said


def test_what_was_changed_stands_beside_what_was_not_once(runs):
    keep(runs[0], "sts", [STS, CHANGED])
    shown = lines(sts_part(runs[:1]))
    assert [row[5] for row in shown] == ["as they are", "clip 5"]
    assert [float(row[7]) for row in shown] == [
        pytest.approx(record["sets"][0]["mean"]["spearman"][1], abs=0.01) for record in (STS, CHANGED)
    ]


def test_wic_has_both_rules_and_the_constant_answer(runs):
    keep(runs[0], "wic", [WIC])
    shown = lines(wic_part(runs))
    assert [row[2] for row in shown] == [*RULES, "always the same sense"]
    assert shown[0][-2].startswith(f"{WIC['grid']['best']['accuracy']['train']:.1f} ± ")
    assert shown[-1][-2:] == [f"{WIC['always same'][split]:.1f}" for split in ("train", "dev")]


def test_what_no_run_has_is_named_by_its_command(runs):
    for part, command in ((squad_part, "squad"), (sts_part, "sts"), (wic_part, "wic")):
        assert f"No run here has scores of {command} yet" in Reader(part(runs)).said


@pytest.mark.parametrize("content", ["[{", "[{}]", '{"a": 1}', "[1]"])
def test_damaged_scores_are_refused_by_name(runs, content):
    for part, command in ((squad_part, "squad"), (sts_part, "sts"), (wic_part, "wic")):
        run = dataclasses.replace(runs[0], workdir=runs[0].workdir / command)
        keep(run, command, [])
        (run.workdir / command / "scores.json").write_text(content)
        with pytest.raises(UserError, match=rf"{command}/scores.json is damaged"):
            part([run])
