import numpy as np

from posenc_jax.analysis.attention_measures import Measure
from posenc_jax.analysis.input_correlations import FOUR
from posenc_jax.analysis.plots.attention import (
    plot_by_distance,
    plot_by_layer,
    plot_input_correlations,
    plot_similarities,
)
from posenc_jax.analysis.plots.style import LAYER


def test_four_correlations_are_shown_on_one_scale_around_zero(rng):
    maps = {name: rng.normal(0, 1 + place, (4, 4)) for place, name in enumerate(FOUR)}
    maps["word_word"][0, 0] = np.nan
    maps["constant"] = np.full((4, 4), 99.0)
    figure = plot_input_correlations(maps, ["[CLS]", "a", "man", "[SEP]"])
    most = max(np.nanmax(np.abs(maps[name])) for name in FOUR)
    for axes, name in zip(figure.axes, FOUR, strict=False):
        np.testing.assert_array_equal(axes.images[0].get_array().filled(np.nan), maps[name])
        assert axes.images[0].get_clim() == (-most, most)
        assert axes.get_title().startswith(name.replace("_", " to "))
    outer = figure.axes[2]  # the panels share their axes, and the inner ones have no words
    for labels in (outer.get_xticklabels(), outer.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["[CLS]", "a", "man", "[SEP]"]
    assert figure.axes[4].get_ylabel() == "part of the logit, first layer"
    assert figure.get_supxlabel() == "word or position of the key"


def test_measures_by_layer_show_every_head_their_mean_and_uniform_attention(rng):
    value_ExH = rng.uniform(size=(3, 4))
    measures = {"mean distance (slots)": Measure(value_ExH, 5.5), "entropy (nats)": Measure(value_ExH + 1, 2.0)}
    figure = plot_by_layer(measures, ("1", "2", "3"))
    for axes, (label, measure) in zip(figure.axes, measures.items(), strict=True):
        heads = np.stack([line.get_ydata() for line in axes.lines[:4]], 1)
        np.testing.assert_array_equal(heads, measure.value_ExH)
        np.testing.assert_allclose(axes.lines[5].get_ydata(), measure.value_ExH.mean(1))
        assert axes.lines[6].get_ydata()[0] == measure.uniform
        assert axes.get_ylabel() == label
    assert figure.axes[-1].get_xlabel() == LAYER
    assert [text.get_text() for text in figure.axes[-1].get_xticklabels()] == ["1", "2", "3"]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "a head",
        "mean",
        "uniform attention",
    ]


def test_similarities_are_a_bar_for_each_form_and_run():
    words = {"mlm": dict(plain=0.5, squared=0.3, centred=-0.02), "mth": dict(plain=0.2, squared=0.1, centred=-0.03)}
    words["mth_squared"] = dict(plain=0.19, squared=0.1, centred=-0.04)
    heads = {run: {form: value / 2 for form, value in by_form.items()} for run, by_form in words.items()}
    figure = plot_similarities(words, heads)
    figure.draw_without_rendering()
    for axes, values in zip(figure.axes, (words, heads), strict=True):
        assert [bar.get_height() for bar in axes.patches] == [
            v for by_form in values.values() for v in by_form.values()
        ]
        assert [text.get_text() for text in axes.get_xticklabels()] == ["plain", "squared", "centred"]
        assert axes.get_xlabel() == "form of the cosine"
        boxes = [label.get_window_extent() for label in axes.texts]
        assert len(boxes) == 9
        assert not any(one.overlaps(other) for number, one in enumerate(boxes) for other in boxes[:number])
    assert figure.axes[0].get_ylabel() == "mean cosine over pairs"
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["mlm", "mth", "mth_squared"]


def test_weight_by_distance_is_a_line_a_head_beside_uniform_attention(rng):
    heads = {"attention head 1": rng.random(7), "attention head 2": rng.random(7), "window, head 1": rng.random(7)}
    layers, uniform_C = {"layer 1": heads, "layer 2": {"attention head 1": rng.random(7)}}, np.full(7, 0.1)
    figure = plot_by_distance(layers, uniform_C)
    for axes, (title, values) in zip(figure.axes, layers.items(), strict=True):
        assert axes.get_title() == title
        drawn = {line.get_label(): line for line in axes.lines}
        for name, weight_C in {**values, "uniform attention": uniform_C}.items():
            np.testing.assert_array_equal(drawn[name].get_xdata(), np.arange(-3, 4))
            np.testing.assert_array_equal(drawn[name].get_ydata(), weight_C)
    first = {line.get_label(): line for line in figure.axes[0].lines}
    one, two, window = (first[name] for name in heads)
    assert one.get_color() == two.get_color() != window.get_color() and one.get_linestyle() != two.get_linestyle()
    assert [axes.get_xlabel() for axes in figure.axes] == ["key minus query (slots)"] * 2
    assert figure.axes[0].get_ylabel() == "mean weight"
    highest = max(weight_C.max() for values in layers.values() for weight_C in values.values())
    low, high = figure.axes[1].get_ylim()
    assert low == 0 and high >= highest
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [*heads, "uniform attention"]
