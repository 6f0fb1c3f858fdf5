"""Every variant equals its definition: 1e-5 in float32, 1e-10 in float64.

Parameters are drawn with deviation 0.3, some fifteen times the models' start: logits of several units.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.checks import config_from_dict
from posenc_jax.config import Config, config_to_dict
from posenc_jax.model.encoder import Encoder
from posenc_jax.positions import check_scheme
from tests.oracle import encode_row
from tests.variants import COMPATIBILITIES, MAIN, MIXERS, SCHEMES, float64, random_params, small_model

LENGTH = 23


def batch():
    """Padding on the right; two documents; padding on the left; three documents, one of a single word, and padding;
    and words in no order with gaps between them. Tokens, segments, positions, types, [5, 23] each."""
    rng = np.random.default_rng(1)
    segments, position = np.ones((5, LENGTH), np.int32), np.tile(np.arange(LENGTH, dtype=np.int32), (5, 1))
    segments[0, 17:] = 0
    segments[1, 9:], position[1, 9:] = 2, np.arange(14)
    segments[2, :4], position[2] = 0, np.maximum(np.arange(LENGTH) - 4, 0)
    segments[3] = np.repeat([1, 2, 3, 0], [7, 1, 11, 4])
    position[3] = np.concatenate([np.arange(7), [0], np.arange(15)])
    position[4] = rng.permutation(37)[:LENGTH]
    tokens, types = rng.integers(5, 71, (5, LENGTH)), rng.integers(0, 2, (5, LENGTH))
    return tokens.astype(np.int32), segments, position, types.astype(np.int32)


IN_ORDER = slice(0, 4)
"""Rows of the batch whose positions grow by one within a document."""
PRECISIONS = {"float32": 1e-5, "float64": 1e-10}


@functools.partial(jax.jit, static_argnums=(0, 1))
def run(encoder, with_gathers, params, *arguments):
    """The rows in order, relative terms read along diagonals; and the whole batch, read by gathers."""
    in_order = encoder.apply({"params": params}, *(a[IN_ORDER] for a in arguments), contiguous=True)
    return in_order, encoder.apply({"params": params}, *arguments, contiguous=False) if with_gathers else in_order


def assert_equals_the_oracle(config, *precisions, with_gathers=True):
    """Float32 along diagonals alone: the two paths move numbers about and do the same sums."""
    arguments = batch()
    params = random_params(Encoder(config), *arguments)
    exact = float64(params)
    want = [encode_row(exact, config, *row) for row in zip(*arguments, strict=True)]
    real = arguments[1] > 0
    for dtype in precisions:
        with jax.enable_x64(dtype == "float64"):
            encoder = Encoder(dataclasses.replace(config, dtype=dtype))
            cast = jax.tree.map(lambda leaf, dtype=dtype: jnp.asarray(leaf, dtype), exact)
            outputs = run(encoder, with_gathers and dtype == "float64", cast, *arguments)
        for output in outputs:
            assert output.dtype == dtype
            for row in range(len(output)):
                got, expected = output[row][real[row]], want[row][real[row]]
                np.testing.assert_allclose(got, expected, rtol=0, atol=PRECISIONS[dtype])


def norm(arms, arm):
    return ("post", "pre")[list(arms).index(arm) % 2]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme(scheme):
    assert_equals_the_oracle(small_model(scheme, norm=norm(SCHEMES, scheme)), *PRECISIONS)


@pytest.mark.parametrize("compatibility", COMPATIBILITIES)
def test_every_compatibility(compatibility):
    model = small_model("bert_r", compatibility, norm=norm(COMPATIBILITIES, compatibility))
    assert_equals_the_oracle(model, *PRECISIONS)


@pytest.mark.parametrize("mixer", MIXERS)
def test_every_mixer(mixer):
    """With learned positions: where padding leaks, what it leaks depends on its position."""
    model = small_model("bert_a", "dot_product", mixer, norm=norm(MIXERS, mixer))
    assert_equals_the_oracle(model, *PRECISIONS)


def combinations():
    """Every scheme with every kind of mixer, and the rest dealt so that any two settings meet somewhere."""
    mixers, compatibilities = ("attention", "mixed", "light", "separable"), ("dot_product", "symmetric", "pairwise")
    for (s, scheme), (m, mixer) in itertools.product(enumerate(MAIN), enumerate(mixers)):
        changes = {
            "norm": ("post", "pre")[(s + m) // 2 % 2],
            "feed_forward_groups": 1 + (s + m // 2) % 2,
            "embedding_width": (None, 14)[(s // 2 + m) % 2],
            "token_types": 2 * ((s // 2 + m // 2) % 2),
        }
        yield scheme, compatibilities[(s + m) % 3], mixer, changes


def test_any_two_settings_meet_in_some_combination():
    rows = [(*names, *changes.values()) for *names, changes in combinations()]
    for a, b in itertools.combinations(range(len(rows[0])), 2):
        met = {(row[a], row[b]) for row in rows}
        assert len(met) == len({row[a] for row in rows}) * len({row[b] for row in rows}), (a, b)


@pytest.mark.parametrize(
    "combination", list(combinations()), ids=lambda c: "-".join(map(str, (*c[:3], *c[3].values())))
)
def test_combinations(combination):
    *names, changes = combination
    assert_equals_the_oracle(small_model(*names, **changes), "float64", with_gathers=False)


def test_every_arm_is_a_config_that_is_accepted():
    arms = [(scheme,) for scheme in SCHEMES]
    arms += [("bert_a", compatibility) for compatibility in COMPATIBILITIES]
    arms += [("bert_a", "dot_product", mixer) for mixer in MIXERS]
    for arm in arms:
        config = Config(model=small_model(*arm))
        check_scheme(config.model, LENGTH)
        assert config_from_dict(config_to_dict(config)) == config
