import numpy as np

from posenc_jax.analysis.plots.likeness import plot_likeness, plot_similarity_by_layer
from posenc_jax.analysis.plots.style import LAYER


def test_cosines_by_layer_are_a_line_a_run(rng):
    lines = {"mlm": rng.random(4), "mth": rng.random(4)}
    (axes,) = plot_similarity_by_layer(lines, ("0", "1", "2", "last")).axes
    for line, (name, value_E) in zip(axes.lines, lines.items(), strict=False):
        assert line.get_label() == name
        np.testing.assert_array_equal(line.get_ydata(), value_E)
    assert axes.get_xlabel() == LAYER and axes.get_ylabel() == "mean cosine over pairs"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "2", "last"]


def test_points_stand_beside_the_curve_that_they_are_judged_by():
    curve, points = [(2.0, 0.6), (1.0, 0.3), (3.0, 0.9)], {"mlm": (2.0, 0.6), "hcd": (1.5, 0.2)}
    (axes,) = plot_likeness(curve, points, "mlm, to a power").axes
    drawn = {line.get_label(): line for line in axes.lines}
    np.testing.assert_array_equal(drawn["mlm, to a power"].get_xydata(), sorted(curve))
    for name, point in points.items():
        np.testing.assert_array_equal(drawn[name].get_xydata(), [point])
    assert axes.get_xlabel() == "mean entropy of attention rows (nats)"
    assert axes.get_ylabel() == "mean cosine of different heads"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mlm, to a power", "mlm", "hcd"]
