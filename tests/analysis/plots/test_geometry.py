"""Figures of the geometry show the numbers they were given, on named axes."""

import dataclasses

import numpy as np
import pytest

from posenc_jax.analysis.geometry import Estimate, Geometry
from posenc_jax.analysis.plots.geometry import plot_geometry, plot_mev
from posenc_jax.analysis.plots.style import LAYER

LAYERS = ("0", "1", "2", "last")


@pytest.fixture
def variants(rng):
    def one(size):
        anisotropy, within = rng.uniform(0, size, 4), rng.uniform(0, 1, 4)
        return Geometry(
            Estimate(anisotropy, np.full(4, 0.01), 321),
            self_similarity_E=within,
            adjusted_E=within - anisotropy,
            mev_E=rng.uniform(0, 1, 4),
            mev_words_E=np.full(4, 77),
            words=77,
        )

    return {"raw": one(1.0), "clipped": one(0.2)}


def test_three_panels_show_anisotropy_and_self_similarity_raw_and_adjusted(variants):
    figure = plot_geometry(variants, LAYERS)
    panels = figure.axes
    for number, geometry in enumerate(variants.values()):
        shown = (geometry.anisotropy.mean_E, geometry.self_similarity_E, geometry.adjusted_E)
        for axes, values in zip(panels, shown, strict=True):
            np.testing.assert_array_equal(axes.lines[number].get_ydata(), values)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["raw", "clipped"]
    assert "321 pairs" in panels[0].get_title() and "77 words" in panels[1].get_title()
    assert panels[0].get_ylabel() == "mean cosine" and all(
        axes.get_xlabel().split() == LAYER.split() for axes in panels
    )
    assert [text.get_text() for text in panels[0].get_xticklabels()] == list(LAYERS)


def test_the_band_is_two_standard_errors(variants):
    (band, _) = plot_geometry(variants, LAYERS).axes[0].collections
    mean = variants["raw"].anisotropy.mean_E
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(mean.min() - 0.02) and heights.max() == pytest.approx(mean.max() + 0.02)


def test_negative_values_are_in_sight(variants):
    below = dataclasses.replace(variants["raw"], adjusted_E=np.array([0.5, -0.3, 0.2, 0.1]))
    panels = plot_geometry({"raw": below}, LAYERS).axes
    assert panels[2].get_ylim()[0] <= -0.3 and panels[1].get_ylim() == (0, 1)


def test_mev_is_shown_by_layer(variants):
    (axes,) = plot_mev(variants, LAYERS).axes
    for line, geometry in zip(axes.lines, variants.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), geometry.mev_E)
    assert axes.get_xlabel() == LAYER and axes.get_ylabel() == "share of the first component"
