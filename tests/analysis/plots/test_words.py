import numpy as np

from posenc_jax.analysis.plots.words import plot_head_maps, plot_logits, plot_windows


def test_windows_are_a_panel_a_head_and_a_row_a_word(rng):
    window_HxLxK = rng.random((2, 4, 5))
    figure = plot_windows(window_HxLxK, ["[CLS]", "a", "man", "[SEP]"])
    for axes, window_LxK in zip(figure.axes, window_HxLxK, strict=False):
        np.testing.assert_array_equal(axes.images[0].get_array(), window_LxK)
        assert axes.images[0].get_clim() == (0, window_HxLxK.max())
        assert axes.images[0].get_extent() == [-2.5, 2.5, 3.5, -0.5]  # slot 2 of 5 is the word itself
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["[CLS]", "a", "man", "[SEP]"]
    assert figure.get_supxlabel() == "neighbour, words before and after"
    assert figure.axes[2].get_ylabel() == "weight in the window"


def test_logits_of_models_are_a_panel_each_around_zero(rng):
    maps = {"bert": rng.normal(size=(3, 3)), "pairwise": rng.normal(0, 9, (3, 3)), "symmetric": np.eye(3)}
    figure = plot_logits(maps, ["[CLS]", "a", "[SEP]"])
    for axes, (name, map_LxL) in zip(figure.axes, maps.items(), strict=False):
        assert axes.get_title() == name
        np.testing.assert_array_equal(axes.images[0].get_array(), map_LxL)
        assert axes.images[0].get_clim() == (-abs(map_LxL).max(), abs(map_LxL).max())
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["[CLS]", "a", "[SEP]"]
    assert figure.get_supxlabel() == "key" and figure.get_supylabel() == "query (colour: logit)"


def test_every_head_of_every_model_is_a_panel_on_one_scale(rng):
    maps = {"mlm": rng.random((3, 4, 4)), "mth": 2 * rng.random((2, 4, 4))}
    figure = plot_head_maps(maps)
    for row, (name, map_HxLxL) in enumerate(maps.items()):
        for head, map_LxL in enumerate(map_HxLxL):
            axes = figure.axes[3 * row + head]
            assert axes.get_title() == f"{name}, head {head + 1}"
            np.testing.assert_array_equal(axes.images[0].get_array(), map_LxL)
            assert axes.images[0].get_clim() == (0, maps["mth"].max())
    assert not figure.axes[5].images and not figure.axes[5].axison
    assert figure.get_supxlabel() == "slot of the key" and figure.get_supylabel() == "slot of the query"
    assert figure.axes[6].get_ylabel() == "attention"
