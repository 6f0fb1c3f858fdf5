"""What each shipped config resolves to, and the parameters it makes, against snapshots in `tests/golden`.

A wanted change: `UPDATE_GOLDEN=1 python -m pytest tests/test_shipped_configs.py`, then read the diff.
"""

import dataclasses
import json
import os
from pathlib import Path

import jax
import pytest
from flax import linen as nn

from posenc_jax.checks import config_from_dict
from posenc_jax.config import Config, MeshConfig, config_to_dict
from posenc_jax.config_files import load_config, shipped_variants
from posenc_jax.objectives.pretraining import make_objective
from posenc_jax.parallel.mesh import make_mesh, param_shardings
from posenc_jax.training.state import count_parameters
from posenc_jax.typed import flatten

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted({spec.partition(":")[0] for spec in shipped_variants()})
SIZES = {
    "configs/convbert.py": ("small", "medium_small", "base", "large", "tiny"),
    "configs/electra.py": ("small", "base", "large", "tiny"),
}
VOCABULARY = 30_522


def specs(file):
    """Every variant at base size, and the first variant at every size."""
    variants = [spec for spec in shipped_variants() if spec.startswith(file + ":")]
    sizes = SIZES.get(file, ("tiny", "small", "base", "large"))
    return [f"{spec},base" for spec in variants] + [f"{variants[0]},{size}" for size in sizes if size != "base"]


def snapshot(spec):
    config = load_config(spec)
    now, default = flatten(config_to_dict(config)), flatten(config_to_dict(Config()))
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=VOCABULARY))
    params = nn.unbox(jax.eval_shape(make_objective(config).init, jax.random.key(0)))
    leaves = {
        jax.tree_util.keystr(path, simple=True, separator="/"): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }
    lines = [f"[{spec}]", *(f"{key} = {now[key]!r}" for key in now if now[key] != default[key])]
    lines += [f"{count_parameters(params):,} parameters at a vocabulary of {VOCABULARY:,}"]
    return "\n".join([*lines, *(f"  {path} {shape}" for path, shape in sorted(leaves.items()))])


@pytest.mark.parametrize("file", FILES)
def test_fields_and_parameters_are_those_of_the_snapshot(file):
    got = "\n\n".join(map(snapshot, specs(file))) + "\n"
    path = GOLDEN / f"{Path(file).stem}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(got)
    assert got == path.read_text()


def test_there_is_one_config_a_paper_and_each_has_a_snapshot():
    papers = {"tupe", "ddrp", "mth", "convbert", "symmetric"}
    assert {Path(file).stem for file in FILES} == {"bert", "electra", *papers}
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {Path(file).stem for file in FILES}


@pytest.mark.parametrize("file", FILES)
def test_every_variant_loads_in_every_size(file):
    for spec in shipped_variants():
        if spec.startswith(file + ":"):
            for size in SIZES.get(file, ("tiny", "small", "base", "large")):
                config = load_config(f"{spec},{size},length=64,seed=3")
                assert config.train.seed == 3 and config.model.positions.max_length == 64
                assert config_from_dict(json.loads(json.dumps(config_to_dict(config)))) == config
                assert config.model.positions.clip in (63, 128)  # no farther than the farthest two words


@pytest.mark.parametrize("file", FILES)
def test_every_variant_has_a_place_on_a_mesh_of_all_axes(file):
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    for spec in shipped_variants():
        if spec.startswith(file + ":"):
            config = load_config(f"{spec},base")
            config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30_528))
            boxed = jax.eval_shape(make_objective(config).init, jax.random.key(0))
            shapes, shardings = nn.unbox(boxed), param_shardings(boxed, mesh)
            jax.tree.map(lambda leaf, sharding: sharding.shard_shape(leaf.shape), shapes, shardings)


@pytest.mark.parametrize("file", FILES)
def test_the_docstring_names_every_variant_and_size(file):
    text = (GOLDEN.parent.parent / file).read_text().split('"""')[1]
    for spec in shipped_variants():
        if spec.startswith(file + ":"):
            assert spec.partition(":")[2] in text, spec
    for size in SIZES.get(file, ("tiny", "small", "base", "large")):
        assert size in text


def test_the_papers_hyper_parameters():
    """convbert_and_electra.md 4, ddrp_mth_and_symmetric.md 2.3."""
    for spec, rate, batch in [("small", 3e-4, 128), ("medium_small", 5e-4, 128), ("base", 2e-4, 256)]:
        config = load_config(f"configs/convbert.py:convbert,{spec}")
        assert (config.optimizer.learning_rate, config.train.batch_size) == (rate, batch)
        assert (config.train.steps, config.optimizer.warmup) == (1_000_000, "10000 steps")
    for spec, rate, batch, steps in [("small", 5e-4, 128, 10**6), ("base", 2e-4, 256, 766_000)]:
        config = load_config(f"configs/electra.py:electra,{spec}")
        assert (config.optimizer.learning_rate, config.train.batch_size, config.train.steps) == (rate, batch, steps)
        assert (config.optimizer.schedule, config.optimizer.bias_correction) == ("linear_product", False)
        assert (config.optimizer.eps, config.optimizer.decay_norms_and_biases) == (1e-6, False)
    config = load_config("configs/symmetric.py:pairwise,base")
    assert (config.train.steps, config.train.batch_size, config.optimizer.learning_rate) == (200_000, 256, 1e-4)
    assert (config.optimizer.eps, config.optimizer.warmup, config.model.norm_eps) == (1e-12, "5 %", 1e-12)
    assert not config.optimizer.decay_norms_and_biases and config.model.compatibility.start == "normal"
