"""The invariants of ddrp_mth_and_symmetric.md 1.2, on the whole encoder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from posenc_jax.model.encoder import Encoder
from tests.variants import apply, random_params, rows, small_model

AT = ("layers", "attention", "positions", "ddrp")


def changed(params, path, change):
    """`params` with `change` of the subtree at `path`."""
    return change(params) if not path else {**params, path[0]: changed(params[path[0]], path[1:], change)}


def run(params, tokens, scheme="ddrp_values"):
    return np.asarray(apply(Encoder(small_model(scheme)), params, tokens, jnp.ones_like(tokens)))


@pytest.fixture
def model(rng):
    encoder = Encoder(small_model("ddrp_values"))
    tokens, segments = rows(rng)
    return random_params(encoder, tokens, segments), tokens


def test_shaw_with_tied_vectors_is_ddrp(model):
    params, tokens = model

    def tied(tables):
        distance, (forward, backward) = tables["distance"], jnp.moveaxis(tables["factor"], 1, 0)
        ahead = [distance[:, c] * forward for c in range(1, 6)]
        behind = [distance[:, c] * backward for c in range(1, 6)]
        return {"table": jnp.stack([*behind[::-1], distance[:, 0], *ahead], axis=1)}

    as_shaw = changed(params, AT[:-1], lambda tree: {"shaw": {name: tied(tree["ddrp"][name]) for name in tree["ddrp"]}})
    np.testing.assert_allclose(run(as_shaw, tokens, "shaw_values"), run(params, tokens), atol=1e-5)


def test_with_equal_directions_a_reversed_text_gives_the_reversed_output(model):
    params, tokens = model
    equal = lambda tables: {**tables, "factor": jnp.tile(tables["factor"][:, :1], (1, 2, 1))}  # noqa: E731
    blind = changed(params, AT, lambda tree: {name: equal(tables) for name, tables in tree.items()})
    np.testing.assert_allclose(run(blind, tokens[:, ::-1]), run(blind, tokens)[:, ::-1], atol=1e-5)
    assert np.abs(run(params, tokens[:, ::-1]) - run(params, tokens)[:, ::-1]).max() > 0.1


def test_a_factor_moved_from_directions_to_distances_is_invisible(model):
    params, tokens = model
    moved = lambda t: {"distance": t["distance"].at[:, 1:].multiply(4.0), "factor": t["factor"] / 4}  # noqa: E731
    other = changed(params, AT, lambda tree: {name: moved(tables) for name, tables in tree.items()})
    np.testing.assert_allclose(run(other, tokens), run(params, tokens), atol=1e-6)


def test_vectors_start_as_wide_as_all_weights():
    """Trap 1: were the directions near 0 too, the product would start fifty times too small."""
    config = small_model("ddrp", width=192, heads=3)
    tokens = jnp.ones((1, 8), jnp.int32)
    init = jax.jit(lambda key: nn.unbox(Encoder(config).init(key, tokens, tokens))["params"])
    tables = init(jax.random.key(0))["layers"]["attention"]["positions"]["ddrp"]["keys"]
    product = tables["distance"][:, 1:, None] * tables["factor"][:, None]
    assert abs(float(product.std()) / 0.02 - 1) < 0.1
    assert abs(float(tables["factor"].mean()) - 1) < 0.01
