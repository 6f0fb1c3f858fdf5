"""The whole way on a small text: stopped while pre-training, it goes on; every act is done once."""

import contextlib
import itertools

import jax
import pytest

from posenc_jax.errors import UsageError
from posenc_jax.evaluation import quickstart as module
from posenc_jax.evaluation.glue import grid as glue
from posenc_jax.evaluation.quickstart import quickstart
from posenc_jax.objectives import pretraining
from posenc_jax.parallel.mesh import make_mesh


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """60 documents of 6 sentences, of words the probes can exchange."""
    people, doings = (
        ("farmer", "teacher", "doctor", "sailor", "painter"),
        ("slowly", "gladly", "never", "often", "always", "soon"),
    )
    documents = [
        "\n".join(f"The {age} {person} of {place} goes {doing} home today." for doing in doings)
        for age, person, place in itertools.product(("old", "young", "tall"), people, ("rome", "york", "bern", "cork"))
    ]
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("\n\n".join(documents))
    return file


@pytest.fixture
def small(monkeypatch):
    for name, value in {"LENGTH": 16, "VOCAB_SIZE": 42, "PROBE_ROWS": 32, "PROBE_DEV_ROWS": 8}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "FINE_TUNING", {**module.FINE_TUNING, "epochs": 1})
    monkeypatch.setattr(module, "PROBES", {"order": module.PROBES["order"]})  # the other is one more compilation an arm
    for place in (pretraining, glue):  # for one device a program is compiled in half the time
        monkeypatch.setattr(place, "make_mesh", lambda config: make_mesh(config, jax.devices()[:1]))
    load, smaller = module.load_config, {"model.layers": 1, "model.width": 16, "model.feed_forward_width": 32}
    monkeypatch.setattr(module, "load_config", lambda spec, overrides: load(spec, {**overrides, **smaller}))


def test_it_is_stopped_goes_on_and_ends_with_table_and_picture(text, tmp_path, small, capsys):
    asked = itertools.count()

    @contextlib.contextmanager
    def stop_at_second_step():
        yield lambda: next(asked) > 0

    settings = dict(steps=3, source=f"text:{text}")
    assert not quickstart(tmp_path, **settings, stopping=stop_at_second_step)
    stopped = capsys.readouterr().out
    assert (
        "[3/6] Pre-training bert_a" in stopped and "stopped and saved at step 1" in stopped and "[4/6]" not in stopped
    )

    assert quickstart(tmp_path, **settings)
    printed = capsys.readouterr().out
    assert "already there" in printed and "bert_a_seed0  goes on from step 1" in printed
    assert all(f"[{act}/6]" in printed for act in range(1, 7)) and printed.count("since the start") == 6
    assert "unigram entropy" in printed and "Chance is 50 %" in printed and "--source text:MY.txt" in printed
    table = printed[printed.index("[6/6]") :]
    assert "bert_a_seed0" in table and "tupe_r_seed0" in table and "50.0 %" in table
    report = (tmp_path / "report.md").read_text()
    assert "| tupe_r_seed0 | order | accuracy |" in report and (tmp_path / "curves.png").exists()

    files = {
        path: path.stat().st_mtime_ns
        for path in tmp_path.rglob("*")
        if path.parent.name in ("3", "order", "glue", "rows")
    }
    assert quickstart(tmp_path, **settings) and files
    assert files == {path: path.stat().st_mtime_ns for path in files}

    with pytest.raises(UsageError, match=r"train\.steps: 3 -> 4"):
        quickstart(tmp_path, steps=4, source=f"text:{text}")
