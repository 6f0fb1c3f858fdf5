"""Folds change no logit: the keys that are written are what a query met before."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.config import CompatibilityConfig, ModelConfig, PositionConfig
from posenc_jax.interop.plain import is_plain, to_plain
from posenc_jax.interop.shapes import abstract_params
from posenc_jax.model.compatibility import meeting_matrix
from tests.interop.theirs import draw_params

MODEL = ModelConfig(
    layers=2,
    width=24,
    heads=4,
    feed_forward_width=40,
    vocab_size=31,
    positions=PositionConfig(max_length=30, offset=3),
    compatibility=CompatibilityConfig("pairwise"),
)


@pytest.fixture
def params():
    return draw_params(abstract_params(MODEL, ("encoder",)))


@pytest.mark.parametrize("form", ["full", "symmetrised", "diagonal"])
def test_the_folded_key_is_m_times_the_query_bias_included(form, rng):
    """Outputs cannot tell a wrong bias of keys (softmax takes no notice of it), so the keys are looked at."""
    model = dataclasses.replace(MODEL, compatibility=CompatibilityConfig("pairwise", form=form))
    params = draw_params(abstract_params(model, ("encoder",)))
    plain, folded = to_plain(model, params, keep_offset=True)
    assert is_plain(plain) and not is_plain(model)
    before, after = (tree["encoder"]["layers"]["attention"] for tree in (params, folded))
    x_D = rng.normal(size=24)
    for layer in range(2):
        q_Hxd, k_Hxd = (
            np.einsum("D,DHd->Hd", x_D, one["kernel"][layer]) + one["bias"][layer]
            for one in (before["query"], after["key"])
        )
        matrix_Hxdxd = meeting_matrix(model, jnp.asarray(before["meeting"]["kernel"][layer]))
        np.testing.assert_allclose(k_Hxd, np.einsum("Hed,Hd->He", matrix_Hxdxd, q_Hxd), rtol=1e-4, atol=1e-5)


def test_places_are_kept_or_counted_from_the_first_that_is_used(params):
    table = params["encoder"]["positions"]["learned"]["table"]
    for keep, rows in ((True, table), (False, table[3:])):
        plain, folded = to_plain(MODEL, params, keep_offset=keep)
        np.testing.assert_array_equal(folded["encoder"]["positions"]["learned"]["table"], rows)
        assert plain.positions.max_length == 30 and plain.positions.offset == (3 if keep else 0)


def test_the_tree_it_is_given_stays_as_it_was(params):
    to_plain(MODEL, params, keep_offset=False)
    assert set(params["encoder"]["layers"]["attention"]) == {"query", "value", "output", "meeting"}
    assert "types" not in params["encoder"] and len(params["encoder"]["positions"]["learned"]["table"]) == 33
