"""Outliers and geometry on the page: a planted spike is named, and clipping it is shown beside."""

import dataclasses

import jax
import numpy as np
import pytest

from posenc_jax.analysis.geometry import Estimate, Geometry
from posenc_jax.analysis.outliers import Outlier
from posenc_jax.evaluation.page.states import MOST_ROWS, _mev, _outlier_table, states_part
from posenc_jax.evaluation.page.texts import Texts
from posenc_jax.interop.pretrained import load_encoder
from tests.evaluation.page.test_html import Reader
from tests.tiny_workdirs import sentences, write_workdir

TEXTS = Texts(sentences(60, seed=2), "text:made up")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    return load_encoder(write_workdir(tmp_path_factory.mktemp("states") / "run"))


def test_a_planted_spike_is_found_and_clipped(frozen):
    def plant(path, leaf):
        keys = [str(getattr(key, "key", key)) for key in path]
        if keys[-2:] in (["feed_forward_norm", "bias"], ["norm", "bias"]):
            return leaf.at[..., 7].set(25.0)
        return leaf

    spiked = dataclasses.replace(frozen, params=jax.tree_util.tree_map_with_path(plant, frozen.params))
    content, lines = states_part(spiked, TEXTS)
    said = Reader(content).said
    assert "Persistent: 7." in said and "dimensions 7 set to 0" in said and "could not be made" not in said
    assert [line[0] for line in lines] == ["raw", "clipped"] and all(line[3] == "7" for line in lines)
    raw, clipped = (float(line[1].split(" ")[0]) for line in lines)
    assert raw > clipped
    assert "60 sentences" in said and "text:made up" in said


def test_texts_too_few_to_measure_are_told_in_their_place(frozen):
    content, lines = states_part(frozen, Texts(TEXTS.sentences[:3], "text:made up"))
    assert "no word is in 5 of these sentences" in Reader(content).said and lines == []


def test_mev_of_words_whose_vectors_vary_says_of_how_many():
    counts = np.array([22, 144, 0])
    one = Geometry(Estimate(*np.zeros((2, 3)), 9), *np.zeros((2, 3)), np.array([1.0, 0.25, np.nan]), counts, words=144)
    assert [_mev(one, place) for place in range(3)] == ["1.000 (22)", "0.250", "-"]


def test_the_table_of_outliers_has_a_line_a_side_persistent_ones_first():
    found = {
        0: [Outlier(4, 1, 0.1, 2.0, 30.0)],
        1: [Outlier(9, -1, 0.6, -1.0, -8.0)],
        2: [Outlier(9, -1, 0.7, -2.0, -9.0)],
    }
    table = _outlier_table(("0", "1", "last"), found, [9])
    assert table.rows == [("9", "1 last", "last", "-2.00", "-9.0", "70"), ("4", "0", "0", "+2.00", "+30.0", "10")]
    many = {0: [Outlier(dim, 1, 0.1, 2.0, 30.0 + dim) for dim in range(MOST_ROWS + 3)]}
    table = _outlier_table(("0",), many, [])
    assert (
        len(table.rows) == MOST_ROWS
        and table.rows[0][0] == str(MOST_ROWS + 2)
        and "3 more are left out" in table.caption
    )
    assert np.all([float(row[4]) >= 33 for row in table.rows])
