import functools

import jax
import numpy as np
import pytest

from posenc_jax.model import dispatch
from posenc_jax.model.attention import WEIGHTS
from posenc_jax.model.encoder import STATES, Encoder
from tests.oracle import softmax
from tests.variants import float64, random_params, rows, small_model


def run(model, params, *batch, **options):
    return jax.jit(functools.partial(Encoder(model).apply, **options))({"params": params}, *batch)


@pytest.mark.parametrize(
    "mixer, changes",
    [("mixed", dict(scan=True)), ("attention", dict(scan=False)), ("mixed", dict(remat=True))],
    ids=str,
)
def test_asked_for_weights_are_the_softmax_of_each_layers_logits(changes, mixer, rng):
    model = small_model("none", "dot_product", mixer, **changes)
    tokens, segments = rows(rng)
    segments = segments.at[1, 15:].set(0)
    params = random_params(Encoder(model), tokens, segments)
    plain = run(model, params, tokens, segments)
    output, kept = run(model, params, tokens, segments, mutable=(WEIGHTS, STATES))
    np.testing.assert_allclose(output, plain, atol=1e-5)
    weights_ExBxHxLxL = kept[WEIGHTS]["layers"]["attention"]["weights"][0]
    states = float64(kept[STATES])
    inputs = [states["input"][0], *states["layers"]["layer"][0][:-1]]
    assert weights_ExBxHxLxL.shape == (2, 3, 3, 23, 23)
    layers = float64(params["layers"]["attention"])
    for n, x_BxLxD in enumerate(inputs):
        q, k = (
            np.einsum("BLD,DHd->BHLd", x_BxLxD, layers[name]["kernel"][n]) + layers[name]["bias"][n][None, :, None]
            for name in ("query", "key")
        )
        logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        logits[1, :, :, 15:] = -1e30
        np.testing.assert_allclose(weights_ExBxHxLxL[n], softmax(logits), atol=1e-5)


def test_no_kernel_is_taken_where_weights_are_asked_for_and_nothing_changes_where_not(rng, capsys):
    dispatch._say.cache_clear()
    model = small_model("t5", width=64, heads=16, kernels="pallas")
    tokens, segments = rows(rng, batch=8, length=24)
    params = random_params(Encoder(model), tokens, segments)

    def program(**options):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
        with jax.set_mesh(mesh):
            return str(
                jax.make_jaxpr(functools.partial(Encoder(model).apply, **options))({"params": params}, tokens, segments)
            )

    assert "pallas_call" in program()
    assert "asked for" not in capsys.readouterr().err
    asked = program(mutable=WEIGHTS)
    assert "pallas_call" not in asked
    assert "not by the pallas kernel: the weights are asked for" in capsys.readouterr().err
