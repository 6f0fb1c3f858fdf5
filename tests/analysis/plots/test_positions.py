import numpy as np
import pytest

from posenc_jax.analysis.patterns import attention_of, classify, profile
from posenc_jax.analysis.plots.positions import plot_position_maps, plot_profiles, plot_scheme_maps, plot_spectra


def panels(figure):
    return [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]


@pytest.mark.parametrize("heads", [1, 5])
@pytest.mark.parametrize("attention", [False, True])
def test_maps_show_each_head_on_one_scale_and_name_it(attention, heads, rng):
    map_HxLxL = rng.normal(size=(heads, 7, 7))
    patterns = classify(map_HxLxL)
    figure = plot_position_maps(map_HxLxL, patterns, attention=attention, first=1)
    shown = panels(figure)
    assert len(shown) == heads
    want = attention_of(map_HxLxL) if attention else map_HxLxL
    for head, axes in enumerate(shown):
        np.testing.assert_array_equal(axes.images[0].get_array(), want[head])
        assert axes.get_title() == f"head {head + 1}: {patterns[head].label}"
        assert list(axes.images[0].get_extent()) == [0.5, 7.5, 7.5, 0.5]
    limits = {axes.images[0].get_clim() for axes in shown}
    assert limits == {(0.1 / 7, 1) if attention else (-np.abs(want).max(), np.abs(want).max())}
    assert figure.get_supxlabel() == "position of the key" and figure.get_supylabel() == "position of the query"
    assert figure.axes[-1].get_ylabel() == ("attention by position alone" if attention else "logit of position alone")


def test_schemes_have_a_panel_and_a_scale_each(rng):
    maps = {"alibi": -np.abs(rng.normal(size=(6, 6))), "zeros": np.zeros((6, 6)), "t5": rng.normal(size=(6, 6))}
    figure = plot_scheme_maps(maps, first=1)
    for axes, (name, map_LxL) in zip(panels(figure), maps.items(), strict=True):
        most = np.abs(map_LxL).max()
        np.testing.assert_array_equal(axes.images[0].get_array(), map_LxL)
        assert axes.images[0].get_clim() == (-(most or 1), most or 1)
        assert axes.get_title() == f"{name}\n±{most:.2g}"
        assert list(axes.images[0].get_extent()) == [0.5, 6.5, 6.5, 0.5]
    assert figure.get_supxlabel() == "position of the key" and figure.get_supylabel() == "position of the query"


def test_profiles_show_the_distances_within_reach_beside_uniform_attention(rng):
    profile_HxC = profile(rng.normal(size=(2, 9, 9)))
    figure = plot_profiles(profile_HxC, reach=3)
    for axes, profile_C in zip(panels(figure), profile_HxC, strict=True):
        line, uniform = axes.lines[:2]
        np.testing.assert_array_equal(line.get_xdata(), range(-3, 4))
        np.testing.assert_array_equal(line.get_ydata(), profile_C[5:12])
        assert uniform.get_ydata()[0] == 1 / 9
    assert figure.get_supxlabel().startswith("distance, key minus query (positions)")
    assert {axes.get_ylim() for axes in panels(figure)} == {(1 / 900, 1.5)}
    whole = plot_profiles(profile_HxC)
    np.testing.assert_array_equal(panels(whole)[0].lines[0].get_ydata(), profile_HxC[0])


def test_spectra_are_shares_of_the_largest_value(rng):
    spectrum_HxL = -np.sort(-rng.uniform(0.1, 5, (3, 6)), axis=1)
    figure = plot_spectra({"tupe": spectrum_HxL, "zeros": np.zeros((1, 6))}, head_width=4)
    (axes,) = figure.axes
    for head in range(3):
        np.testing.assert_allclose(axes.lines[head].get_ydata(), spectrum_HxL[head] / spectrum_HxL[head, 0])
    np.testing.assert_allclose(axes.lines[3].get_ydata(), np.median(spectrum_HxL / spectrum_HxL[:, :1], axis=0))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["tupe", "zeros", "head width 4"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("number of the singular value", "singular value / largest")
    assert axes.get_yscale() == "log"
