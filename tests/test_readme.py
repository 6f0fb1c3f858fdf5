"""The README's own snippet makes a variant that is its formula and trains, as it says."""

import dataclasses
import re
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.config import CompatibilityConfig
from posenc_jax.config_files import load_config
from posenc_jax.model.encoder import Encoder
from posenc_jax.positions import PARTS, Places
from tests.variants import apply, random_params

README = (Path(__file__).parent.parent / "README.md").read_text()
SECTION = README[README.index("### Add your own variant") :]
PART, CONFIG = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)[:2]
IMPORT, LINE = re.search(r"`(from [\w.]+ import Kerple)` .*?`(\"kerple\": Kerple,)`", SECTION, re.DOTALL).groups()


@pytest.fixture
def kerple(monkeypatch, tmp_path):
    module = types.ModuleType("posenc_jax.positions.kerple")
    exec(PART, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    scheme = {}  # what positions/scheme.py knows of it are the two lines
    exec(IMPORT, scheme)
    for name, part in eval(f"{{{LINE}}}", scheme).items():
        monkeypatch.setitem(PARTS, name, part)
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "kerple.py").write_text(CONFIG)
    return load_config(f"{folder / 'kerple.py'}:kerple,tiny", {"model.vocab_size": 50, "model.dtype": "float32"}).model


def test_the_notebook_lines_are_a_config_that_names_its_rows():
    lines = re.search(r"In a notebook:\n\n```python\n(.*?)```", README, re.DOTALL)[1]
    namespace = {}
    exec(lines.replace("pretrain(config", "(lambda *args: None)(config"), namespace)
    assert (namespace["config"].train.steps, namespace["config"].data.path) == (200, "out/rows")


def test_the_snippet_is_under_forty_lines():
    assert len([*PART.splitlines(), IMPORT, LINE, *CONFIG.splitlines()]) < 40


@pytest.mark.parametrize("name", ["dot_product", "pairwise"])
@pytest.mark.parametrize("mixer", ["attention", "mixed"])
def test_the_snippet_is_its_formula_and_every_parameter_learns(kerple, name, mixer):
    model = dataclasses.replace(kerple, compatibility=CompatibilityConfig(name), mixer=mixer)
    encoder = Encoder(model)
    tokens = jnp.arange(22).reshape(2, 11)
    params = random_params(encoder, tokens, jnp.ones_like(tokens))
    table = params["positions"]["kerple"]

    def loss(params):
        return jnp.square(apply(encoder, params, tokens, jnp.ones_like(tokens))[:, 3]).sum()

    gradient = jax.jit(jax.grad(loss))(params)["positions"]["kerple"]
    assert all(np.abs(gradient[name]).min() > 0 for name in "ab")

    a, b = (np.log1p(np.exp(np.asarray(table[name], np.float64))) for name in "ab")
    distance = np.abs(np.arange(11)[:, None] - np.arange(11)[None])
    want = np.stack([-a[h] * np.log1p(b[h] * distance) for h in range(model.attention_heads)])
    bound = encoder.bind({"params": params})
    got = bound.positions.shared_bias(Places(jnp.arange(11)[None], aligned=True))
    np.testing.assert_allclose(got[0], want, atol=1e-5)
