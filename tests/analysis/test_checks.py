"""A slip of the pen is refused by name, with the words there are, where it would have been taken for another form."""

import numpy as np
import pytest

from posenc_jax.analysis.behaviour import kl_influence, zero_ln
from posenc_jax.analysis.checks import check_finite
from posenc_jax.analysis.geometry import informativity, top_share
from posenc_jax.analysis.position_probe import Probe, contributions
from posenc_jax.analysis.sampling import occurrences, sample_pairs
from posenc_jax.analysis.words import pool_words
from posenc_jax.errors import UserError

VECTORS, PAIRS = np.ones((1, 4, 3)), np.array([[0, 1], [2, 3]])
PROBE = Probe(np.ones((2, 3)), None, ())


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: zero_ln({}, [0], which="ouput"), "which='ouput' is none of output, attention, embedding"),
        (lambda: kl_influence(None, {}, [], 1, [0], which="embedding"), "is none of output, attention$"),
        (lambda: informativity(VECTORS, PAIRS, metric="euclid"), "metric='euclid' is none of cos, l2"),
        (lambda: top_share(VECTORS[:, 0], by="size"), "by='size' is none of signed, absolute"),
        (lambda: contributions(PROBE, VECTORS[0], mode="golden", center=False), "mode='golden' is none of gold, pred"),
        (lambda: sample_pairs(None, scheme="one_token"), "scheme='one_token' is none of one_token_per_sentence"),
        (lambda: occurrences(None, unit="subword"), "unit='subword' is none of word, token"),
        (lambda: pool_words(None, how="median"), "how='median' is none of mean, first, last"),
    ],
)
def test_a_word_that_names_no_form_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_the_first_layer_that_is_not_finite_is_named():
    check_finite([True, True], ["0", "1"])
    with pytest.raises(UserError, match=r"states of layer 1 are not finite.* earlier checkpoint"):
        check_finite([True, False, False], ["0", "1", "last"])
