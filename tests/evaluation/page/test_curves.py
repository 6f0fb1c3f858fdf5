"""Learning curves on the page: which runs share a band, and what is drawn of runs that lack something."""

import dataclasses

import numpy as np
import pytest

from posenc_jax.config import Config, ModelConfig, OptimizerConfig, TrainConfig
from posenc_jax.evaluation.page.curves import bands, curves, finite, seed_groups
from posenc_jax.evaluation.runs import Run
from tests.evaluation.page.test_html import Reader


def run(name, seed=0, losses=(6.0, 5.0), steps=(10, 20), entropy=5.5, **changes):
    config = dataclasses.replace(Config(train=TrainConfig(seed=seed)), **changes)
    events = [{"step": s, "kind": "validation", "loss": x} for s, x in zip(steps, losses, strict=True)]
    return Run(name, None, config, events, {"validation": {"unigram_entropy": entropy}}, [])


def test_runs_that_differ_by_seed_alone_share_a_band():
    runs = [run("a", 0), run("b", 1), run("c", 2, model=ModelConfig(layers=3)), run("d", 3, entropy=5.0)]
    groups = seed_groups(runs)
    assert [[one.name for one in group] for group in groups.values()] == [["a", "b"], ["c"], ["d"]]
    assert list(groups) == ["a, b", "c", "d"]  # "learned" would be three of them
    assert list(seed_groups(runs[:2])) == ["learned"]


def test_arms_of_one_variant_keep_their_own_names():
    slow = OptimizerConfig(learning_rate=1e-5)
    runs = [run("a", 0), run("b", 1), run("c", 0, optimizer=slow), run("d", 1, optimizer=slow)]
    assert list(seed_groups(runs)) == ["a, b", "c, d"]


def test_the_band_is_least_to_most_about_the_median():
    (band,) = bands({"x": [[(1, 3.0), (2, 1.0)], [(1, 5.0), (2, 1.5)], [(1, 4.0), (2, 9.0)]]}).values()
    assert (band.median_S.tolist(), band.low_S.tolist(), band.high_S.tolist()) == ([4.0, 1.5], [3.0, 1.0], [5.0, 9.0])


def test_seeds_without_a_common_step_are_lines_of_their_own():
    assert {name: band.seeds for name, band in bands({"x": [[(1, 3.0)], [(2, 5.0)]], "y": [[]]}).items()} == {
        "x, 1": 1,
        "x, 2": 1,
    }


def test_what_is_no_number_is_left_out():
    diverged = run("a", losses=(6.0, float("nan")))
    assert finite(diverged.curve("validation")) == [(10, 6.0)]
    assert len(Reader(curves([diverged])).all("img")) == 1
    assert "No run has logged a loss yet" in curves([run("a", losses=("nan", "inf"))])


def test_the_figure_holds_the_losses_and_the_unigram_entropy(monkeypatch):
    drawn = []
    real = curves.__globals__["plot_learning"]
    monkeypatch.setitem(curves.__globals__, "plot_learning", lambda *a, **k: drawn.append(real(*a, **k)) or drawn[-1])
    markup = curves(
        [
            run("a", 0),
            run("b", 1, losses=(6.4, 5.2)),
            run("c", 0, losses=(6.1, 5.9), steps=(5, 15), model=ModelConfig(layers=2)),
        ]
    )
    lines = [line.get_ydata() for line in drawn[0].axes[0].lines]
    for expected in ([6.2, 5.1], [6.1, 5.9], [5.5, 5.5]):
        assert any(np.allclose(line, expected) for line in map(np.asarray, lines) if len(line) == 2)
    (image,) = Reader(markup).all("img")
    assert "5.100" in image["alt"] and "5.900" in image["alt"]
    assert "least to most" in markup


@pytest.mark.parametrize("runs", [[], [run("a", losses=(), steps=())]])
def test_without_a_loss_there_is_a_sentence(runs):
    assert "No run has logged a loss yet" in curves(runs)
