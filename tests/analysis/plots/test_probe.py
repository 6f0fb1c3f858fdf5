"""Figures of the position probe show the numbers they were given."""

import numpy as np

from posenc_jax.analysis.plots.probe import plot_contribution_heatmaps, plot_contributions, plot_probe_accuracy
from posenc_jax.analysis.plots.style import LAYER
from posenc_jax.analysis.position_probe import Accuracy


def test_accuracy_over_layers_stands_beside_its_baseline():
    by_layer = [Accuracy(0.9 - 0.1 * e, 0.8 - 0.2 * e, np.zeros(3), 0.25) for e in range(3)]
    (axes,) = plot_probe_accuracy(by_layer, ["0", "1", "2"]).axes
    shown = [line.get_ydata() for line in axes.lines]
    np.testing.assert_allclose(shown, [[90, 80, 70], [80, 60, 40], [25, 25, 25]])
    assert axes.get_xlabel() == LAYER and axes.get_ylabel() == "probe accuracy (%)"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "all tokens",
        "mean over positions",
        "always the most frequent position",
    ]


def test_contributions_have_a_line_each(rng):
    lines = {"dimension 7": rng.uniform(size=4), "mean of all": rng.uniform(size=4)}
    (axes,) = plot_contributions(lines, list("0123")).axes
    for line, values in zip(axes.lines, lines.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values)
    assert axes.get_xlabel() == LAYER and "|w v|" in axes.get_ylabel()


def test_a_centred_contribution_is_dashed_in_the_colour_of_its_dimension(rng):
    names = ("dimension 7", "dimension 9", "dimension 7, centred", "mean of all")
    (axes,) = plot_contributions({name: rng.uniform(size=4) for name in names}, list("0123")).axes
    seven, nine, centred, mean = axes.lines
    assert seven.get_color() == centred.get_color() and len({one.get_color() for one in (seven, nine, mean)}) == 3
    assert [one.get_linestyle() for one in axes.lines] == ["-", "-", "--", "-"]


def test_heat_maps_share_one_scale(rng):
    maps = {"dimension 7": rng.uniform(0, 3, (4, 30)), "best other dimension": rng.uniform(0, 1, (4, 30))}
    made = plot_contribution_heatmaps(maps, list("0123"), seen=20)
    panels = made.axes[:2]
    for panel, (title, values) in zip(panels, maps.items(), strict=True):
        np.testing.assert_array_equal(panel.images[0].get_array(), values)
        assert panel.images[0].get_clim() == (0, maps["dimension 7"].max())
        assert panel.get_title() == title and panel.get_ylabel() == LAYER
        assert panel.lines[0].get_xdata()[0] == 19.5
    assert "position" in panels[1].get_xlabel() and "contribution" in made.axes[2].get_ylabel()
