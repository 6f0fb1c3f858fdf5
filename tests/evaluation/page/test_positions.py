"""Positional maps on the page: which layers, and that some are left out."""

import pytest

from posenc_jax.config import PositionConfig
from posenc_jax.evaluation.page.positions import positions_part
from posenc_jax.evaluation.page.texts import Texts
from posenc_jax.interop.pretrained import load_encoder
from tests.evaluation.page.test_html import Reader
from tests.tiny_workdirs import LENGTH, sentences, write_workdir

TEXTS = Texts(sentences(8, seed=2), "text:made up")
LEFT_OUT = "of 3 layers the first and the last are shown"


@pytest.mark.parametrize(
    "scheme, names", [("shaw", ["shaw, layer 1", "shaw, layer 3"]), ("t5", ["t5"]), ("learned", ["learned, layer 1"])]
)
def test_of_maps_of_every_layer_two_are_shown_and_that_is_said(tmp_path, scheme, names):
    positions = PositionConfig(scheme=scheme, max_length=LENGTH)
    content, rows = positions_part(load_encoder(write_workdir(tmp_path, layers=3, positions=positions)), TEXTS)
    assert [name for name, _ in rows] == names
    assert Reader(content).said.count(LEFT_OUT) == (2 if len(names) > 1 else 0)
