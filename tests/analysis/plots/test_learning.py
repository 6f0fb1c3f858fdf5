"""Learning curves show medians, ranges and crossings as they are, on named axes."""

import numpy as np
import pytest
from matplotlib.offsetbox import AnnotationBbox, TextArea

from posenc_jax.analysis.learning import seed_band
from posenc_jax.analysis.plots.learning import plot_learning


@pytest.fixture
def bands():
    steps = [10, 20, 30, 40]
    three = [list(zip(steps, values, strict=True)) for values in ([6, 5, 4, 3], [6, 4, 3, 2], [5.5, 5.2, 4.5, 3.5])]
    return {"bert_a": seed_band(three), "tupe_r": seed_band([list(zip(steps, [6, 3, 2, 1.5], strict=True))])}


def rows_of_steps(axes):
    """The labels of marks, those that stand in one row together."""
    boxes = [one for one in axes.artists if isinstance(one, AnnotationBbox)]
    return [[part.get_text() for part in box.findobj(TextArea)] for box in boxes]


def boxes_of(figure):
    figure.draw_without_rendering()
    rows = [one for one in figure.axes[0].artists if isinstance(one, AnnotationBbox)]
    return [part.get_window_extent() for row in rows for part in row.findobj(TextArea)]


def test_medians_ranges_and_crossings_are_shown(bands):
    (axes,) = plot_learning(bands, "validation loss, nats a masked word", [3.5]).axes
    curves = [line for line in axes.lines if len(line.get_xdata()) == 4]
    for line, band in zip(curves, bands.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), band.step_S)
        np.testing.assert_array_equal(line.get_ydata(), band.median_S)
    (band,) = axes.collections  # one seed has none
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (2, 6)
    marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1]
    assert marks == [(35, 3.5), (pytest.approx(10 + 10 * 2.5 / 3), 3.5)]
    assert rows_of_steps(axes) == [["18"], ["35"]]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["bert_a (3 seeds)", "tupe_r (1 seed)"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "validation loss, nats a masked word")


def test_a_threshold_out_of_reach_is_a_line_without_a_mark(bands):
    (axes,) = plot_learning(bands, "loss", [1.0]).axes
    assert not rows_of_steps(axes) and axes.get_ylim()[0] < 1.0
    assert any(set(line.get_ydata()) == {1.0} for line in axes.lines)


def test_scores_rise_and_steps_may_be_logarithmic(bands):
    (axes,) = plot_learning({"one": seed_band([[(10, 50.0), (20, 70.0)]])}, "GLUE", [60], falling=False, log=True).axes
    assert rows_of_steps(axes) == [["15"]]
    assert axes.get_xscale() == "log" and axes.get_title() == "one seed"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one"]


def curve(step, last=500):
    """Straight down to 5 at `step`, flat from there."""
    return [(0, 7.0), (step, 5.0), (last, 5.0)]


@pytest.mark.parametrize("steps", [(60, 62, 66, 70), (60, 66, 150, 170), (480, 490, 495)])
@pytest.mark.parametrize("width", [6.5, 4.6])
def test_labels_of_marks_do_not_overlap_and_stay_in_sight(steps, width):
    made = plot_learning({f"arm {step}": seed_band([curve(step)]) for step in steps}, "loss", [5.0])
    made.set_size_inches(width, 3.4)
    boxes, around = boxes_of(made), made.axes[0].get_window_extent()
    assert len(boxes) == len(steps)
    for number, box in enumerate(boxes):
        assert around.x0 <= box.x0 and box.x1 <= around.x1
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_ticks_are_whole_steps():
    (axes,) = plot_learning({"one": seed_band([[(10, 6.0), (15, 5.0), (20, 4.0)]])}, "loss").axes
    axes.figure.draw_without_rendering()
    places = axes.get_xticks()
    assert (places == np.round(places)).all()
    assert [text.get_text() for text in axes.get_xticklabels()] == [f"{place:,.0f}" for place in places]
