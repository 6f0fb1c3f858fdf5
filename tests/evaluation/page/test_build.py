"""The whole page: what it shows, what it does in a browser, and that no lack of a workdir keeps it from being made."""

import itertools
import json
import re

import numpy as np
import pytest

from posenc_jax.config import PositionConfig
from posenc_jax.evaluation.glue.scores import write_record
from posenc_jax.evaluation.page.build import POLICY, write_page
from posenc_jax.evaluation.page.encoders import PARTS
from posenc_jax.evaluation.runs import read_runs
from tests.evaluation.glue.score_records import record
from tests.evaluation.page.browser import contrast, look
from tests.evaluation.page.test_html import Reader
from tests.tiny_workdirs import sentences, write_workdir

NASTY = "<script>alert(1)<b>"
POSITIONS = {"tupe": dict(scheme="tupe+t5", untie_cls=True), NASTY: dict(scheme="none")}
SQUAD = {
    "task": "SQuAD 1.1", "exact": 15.5, "f1": 22.1, "seed": 0, "chance_exact": 0.5, "chance_f1": 7.0, "rows": 200,
    "train_rows": 700, "start": "step 0 (ab)", "protocol": "electra", "head": "joint", "epochs": 2, "batch_size": 8,
    "learning_rate": 1e-4, "length": 48, "seconds": 3.0,
}  # fmt: skip


def add_metrics(run, seed=0):
    config = json.loads((run / "config.json").read_text())
    config["train"] |= {"steps": 20, "seed": seed}
    (run / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(seed)
    events = [{"step": step, "kind": "train", "loss": 6 - step / 10 + rng.normal() / 9} for step in range(1, 21)]
    events += [{"step": step, "kind": "validation", "loss": 6 - step / 10} for step in (5, 10, 20)]
    events.append({"step": 20, "kind": "summary", "parameters": 12345, "seconds": 12.0, "validation_loss": 4.0})
    (run / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "some & more.txt"
    path.write_text("\n\n".join(sentences(150, seed=1)) + "\n")
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("runs")
    for name, positions in POSITIONS.items():
        run = write_workdir(folder / name, positions=PositionConfig(max_length=48, **positions))
        add_metrics(run)
        write_record(run, record("order", 0.61, column="order", start="step 0 (ab)", notes=[NASTY]))
    (folder / "tupe" / "squad").mkdir()
    (folder / "tupe" / "squad" / "scores.json").write_text(json.dumps([SQUAD]))
    (folder / "tupe" / "wic").mkdir()
    (folder / "tupe" / "wic" / "scores.json").write_text("[{")
    runs = read_runs([folder / name for name in POSITIONS])
    return write_page(runs, folder / "out", text=str(text), command="report & more").read_text()


def test_every_section_is_there_with_what_the_runs_have(page):
    read = Reader(page)
    for words in (
        "Pre-training",
        "Scores",
        *PARTS,
        "How the runs were made",
        "4.000",
        "61.00",
        "22.10",
        "report & more",
    ):
        assert words in read.said
    assert "Positional maps" in " ".join(image["alt"] for image in read.all("img"))
    assert re.search(r"subwords of 1[0-9]{2} sentences", read.said) and "some & more.txt" in read.said


def test_what_cannot_be_had_is_told_in_its_place(page):
    said = Reader(page).said
    assert "model.positions.scheme='none' tells no positions" in said
    assert re.search(r"Word in Context cannot be shown: .*scores.json is damaged", said)
    assert "No run here has scores of sts yet" in said
    assert "could not be made" not in said


def test_a_name_is_never_markup(page):
    read = Reader(page)
    assert not read.all("script") and NASTY in read.said
    assert not re.search(r"<b>(?!old)", page)


def test_the_page_says_that_nothing_may_be_fetched_and_fetches_nothing(page):
    read = Reader(page)
    assert [one["content"] for one in read.all("meta") if one.get("http-equiv")] == [POLICY]
    addresses = [value for _, attributes in read.tags for name, value in attributes.items() if name in ("src", "href")]
    assert addresses and all(address.startswith(("data:", "#")) for address in addresses)
    assert "url(" not in page and "@import" not in page


def test_headings_are_in_order_and_pictures_have_words(page):
    read = Reader(page)
    levels = [int(tag[1]) for tag, _ in read.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(deeper <= level + 1 for level, deeper in itertools.pairwise(levels))
    assert read.all("html")[0]["lang"] == "en"
    assert all(len(image["alt"]) > 20 for image in read.all("img"))
    assert len(read.all("table")) == len(read.all("caption"))
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_shows_all_of_it_at_any_width_and_asks_nobody(page, tmp_path, dark):
    seen = look(page, tmp_path, dark=dark)
    assert seen.console == [] and seen.asked == []
    assert set(seen.frames) == {400, 1600}
    for width, frame in seen.frames.items():
        assert frame["errors"] == [] and frame["missing"] == [] and frame["requests"] == []
        assert frame["pictures"] >= 6 and frame["dark"] == dark
        assert frame["scrolls"] <= width
        assert contrast(frame["page"], frame["text"]) > 7
        assert min(contrast(frame["page"], colour) for colour in frame["soft"]) > 4.5


def test_the_browser_would_tell(tmp_path):
    bad = (
        '<html><head><title>x</title></head><body><p style="width:700px">wide</p>'
        '<img src="http://example.invalid/a.png" alt="gone"><script>nothing()</script></body></html>'
    )
    seen = look(bad, tmp_path, widths=(400,))
    frame = seen.frames[400]
    assert frame["scrolls"] > 400 and frame["missing"] == ["gone"] and len(frame["errors"]) == 2
    assert frame["requests"] and "GET http://example.invalid/a.png HTTP/1.1" in seen.asked
    assert any("nothing is not defined" in line for line in seen.console)


def test_a_workdir_without_weights_or_curves_still_has_a_page(tmp_path, text):
    run = write_workdir(tmp_path / "run")
    for path in sorted((run / "checkpoints").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    said = Reader(write_page(read_runs([run]), tmp_path / "out", text=str(text)).read_text()).said
    assert "No run has logged a loss yet" in said
    assert said.count("The encoder of run cannot be shown") == len(PARTS)


def test_tables_alone_load_no_weights(tmp_path, monkeypatch):
    run = write_workdir(tmp_path / "run")
    monkeypatch.setattr("posenc_jax.evaluation.page.encoders.load_encoder", None)
    read = Reader(write_page(read_runs([run]), tmp_path / "out", encoders=False).read_text())
    assert "Pre-training" in read.said and not any(part in read.said for part in PARTS)


def test_the_same_page_again_is_the_same(tmp_path, text):
    run = write_workdir(tmp_path / "run")
    add_metrics(run)
    first, second = (write_page(read_runs([run]), tmp_path / name, text=str(text)).read_bytes() for name in "ab")
    assert first == second
