"""Figures of outliers show the numbers they were given."""

import numpy as np
import pytest

from posenc_jax.analysis.plots.outliers import plot_mean_vectors, plot_outlier_trajectory
from posenc_jax.analysis.plots.style import FONT, LAYER, figure, layer_axis, save


@pytest.fixture
def means(rng):
    mean_ExD = rng.normal(0, 0.3, (5, 40))
    mean_ExD[1:, 30] = [-6, -9, -12, -7]
    return mean_ExD


def drawn(made):
    """The figure's texts after layout, and the sizes they have."""
    made.draw_without_rendering()
    texts = [text for text in made.findobj(lambda one: hasattr(one, "get_fontsize")) if text.get_text()]
    return {text.get_text() for text in texts}, min(text.get_fontsize() for text in texts)


def test_mean_vectors_have_a_panel_a_layer_with_its_values(means):
    made = plot_mean_vectors(means, list("01234"), [30])
    panels = [axes for axes in made.axes if axes.get_visible()]
    assert len(panels) == 5
    for panel, mean_D, name in zip(panels, means, "01234", strict=True):
        np.testing.assert_array_equal(panel.lines[0].get_ydata(), mean_D)
        assert panel.get_title() == f"layer {name}"
    texts, smallest = drawn(made)
    assert {"30", "dimension"} <= texts and any("0 = embedding output" in text for text in texts) and smallest >= 8
    tops = [panel.get_ylim()[1] for panel in panels]
    assert any("a scale of its own" in text for text in texts) and len(set(tops)) == 5


def test_trajectories_stand_before_the_range_of_the_others(means):
    made = plot_outlier_trajectory(means, [30, 2], list("01234"))
    (axes,) = made.axes
    for line, dim in zip(axes.lines, (30, 2), strict=False):
        np.testing.assert_array_equal(line.get_ydata(), means[:, dim])
    low, high = (getattr(np.delete(means, [2, 30], 1), name)(1) for name in ("min", "max"))
    vertices = axes.collections[0].get_paths()[0].vertices
    assert set(low) | set(high) <= set(vertices[:, 1])
    assert axes.get_xlabel() == LAYER and axes.get_ylabel() == "mean value over tokens"
    texts, smallest = drawn(made)
    assert {"dimension 30", "dimension 2", "all other dimensions"} <= texts and smallest >= 8


def test_many_layers_have_few_ticks_and_a_figure_is_saved_whole(tmp_path):
    made, axes = figure()
    layer_axis(axes, [str(number) for number in range(25)])
    assert [tick.get_text() for tick in axes.get_xticklabels()][:3] == ["0", "2", "4"]
    assert axes.xaxis.label.get_fontsize() == FONT
    path = save(made, tmp_path / "one.png")
    assert path.read_bytes().startswith(b"\x89PNG") and list(tmp_path.iterdir()) == [path]
