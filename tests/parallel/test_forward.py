import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.model.encoder import Encoder
from posenc_jax.parallel import forward
from posenc_jax.parallel.forward import jit_forward
from tests.variants import random_params, small_model


@pytest.fixture(autouse=True)
def _ask_again():
    forward._compiler_options.cache_clear()
    yield
    forward._compiler_options.cache_clear()


def test_an_encoder_gives_what_it_gives_under_jit():
    encoder = Encoder(small_model("tupe_r"))
    words = np.arange(30, dtype=np.int32).reshape(2, 15) % 18, np.ones((2, 15), np.int32)
    arguments = {"params": random_params(encoder, *words)}, *words
    run, by_jit = jit_forward(encoder.apply), jax.jit(encoder.apply)(*arguments)
    np.testing.assert_allclose(run(*arguments), by_jit, atol=1e-5)
    np.testing.assert_allclose(jax.jit(run)(*arguments), by_jit, atol=1e-5)  # and within another program


def test_options_of_jit_are_kept_and_one_shape_is_compiled_once():
    traced = []

    def scaled(by, x):
        traced.append(by)
        return by * x

    run = jit_forward(scaled, static_argnums=0)
    assert [float(run(by, jnp.ones(()))) for by in (2, 3, 3)] == [2, 3, 3]
    assert traced == [2, 3] and run.__name__ == "scaled"


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="the option may be gone")
def test_this_version_knows_the_option():
    assert forward._compiler_options() == forward.UNFUSED


def test_where_the_option_is_not_known_or_the_device_no_cpu_there_is_none(monkeypatch):
    monkeypatch.setattr(forward, "UNFUSED", {"xla_cpu_no_such_option": ""})
    assert forward._compiler_options() == {}
    assert jit_forward(lambda x: x + 1)(jnp.ones(())) == 2
    forward._compiler_options.cache_clear()
    monkeypatch.undo()
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert forward._compiler_options() == {}
