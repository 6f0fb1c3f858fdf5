"""The published multiples of the learning rate, for every parameter of every kind of encoder."""

import jax
import numpy as np
import optax
import pytest
from flax import linen as nn

from posenc_jax.objectives.supervised import Supervised
from posenc_jax.training.layer_decay import layer_decay
from tests.variants import MAIN, small_model

FORMS = {"official": 2, "corrected": 1}


def tree(layers):
    shape = (layers, 3, 2)
    return {
        "encoder": {
            "words": np.ones((5, 2), np.float32),
            "norm": {"scale": np.ones(2, np.float32)},
            "layers": {"kernel": np.ones(shape, np.float32)},
        },
        "head": {"bias": np.ones(2, np.float32)},
    }


def rates(base, factor, layers, form):
    optimizer = optax.chain(optax.sgd(base), layer_decay(factor, layers, form))
    updates, _ = optimizer.update(tree(layers), optimizer.init(tree(layers)))
    return jax.tree.map(lambda u: -np.asarray(u, np.float64), updates)


def test_the_published_rates_of_a_base_model():
    moved = rates(1e-4, 0.8, 12, "official")
    np.testing.assert_allclose(moved["head"]["bias"], 1e-4, rtol=1e-6)
    layers = moved["encoder"]["layers"]["kernel"][:, 0, 0]
    assert [f"{rate:.2e}" for rate in (layers[-1], layers[0])] == ["6.40e-05", "5.50e-06"]
    assert f"{moved['encoder']['words'][0, 0]:.2e}" == "4.40e-06"


@pytest.mark.parametrize("form", FORMS)
def test_each_layer_has_one_power_more_than_the_next(form):
    moved = rates(1.0, 0.8, 4, form)
    layers = moved["encoder"]["layers"]["kernel"]
    assert (layers == layers[:, :1, :1]).all()
    np.testing.assert_allclose(layers[:, 0, 0], 0.8 ** (np.arange(3, -1, -1) + FORMS[form]), rtol=1e-6)
    np.testing.assert_allclose(moved["encoder"]["norm"]["scale"], 0.8 ** (4 + FORMS[form]), rtol=1e-6)


@pytest.mark.parametrize("name", MAIN)
def test_every_parameter_of_every_variant_has_a_rule(name):
    model = small_model(name, mixer="mixed", token_types=2, embedding_width=7, norm="pre")
    params = nn.unbox(jax.eval_shape(Supervised(model, 2).init, jax.random.key(0)))
    layer_decay(0.8, model.layers).init(params)


def test_a_parameter_without_a_rule_is_an_error_that_names_it():
    odd = tree(2)
    odd["encoder"]["extra"] = np.ones(2, np.float32)
    with pytest.raises(ValueError, match="encoder/extra"):
        layer_decay(0.8, 2).init(odd)
    with pytest.raises(ValueError, match="layers/kernel"):
        layer_decay(0.8, 3).init(tree(2))
    with pytest.raises(ValueError, match="pooler"):
        layer_decay(0.8, 2).init({"pooler": np.ones(2, np.float32)})
