"""One run that goes on on other meshes: as on one, but for rounding."""

import itertools
import json
import math

import jax
import numpy as np
import pytest

from posenc_jax.config import MeshConfig
from posenc_jax.objectives import pretraining
from posenc_jax.objectives.pretraining import pretrain
from posenc_jax.parallel.mesh import make_mesh
from posenc_jax.training.checkpoint import read_params
from tests.objectives.test_observability import settings
from tests.tiny_rows import write_rows

STAGES = [(dict(data=8), 4), (dict(data=2, fsdp=2, tensor=2), 9), (dict(data=1), 12)]
"""Meshes, and the step up to which the run is on each."""


@pytest.fixture
def rows(tmp_path):
    write_rows(tmp_path / "rows", train=90)
    return tmp_path / "rows"


def events(workdir, kind):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return {event["step"]: event["loss"] for event in lines if event["kind"] == kind}


def newest(workdir):
    """The newest checkpoint, 0 where there is none."""
    return max((int(path.name) for path in workdir.glob("checkpoints/*")), default=0)


def test_a_run_that_goes_from_mesh_to_mesh_has_the_losses_and_ends_where_one_on_one_device_does(
    rows, tmp_path, monkeypatch
):
    def of_these_devices(mesh: MeshConfig):
        return make_mesh(mesh, jax.devices()[: math.prod((mesh.data, mesh.fsdp, mesh.tensor))])

    monkeypatch.setattr(pretraining, "make_mesh", of_these_devices)
    changes = {
        "model.dropout": 0.1, "model.heads": 2, "train.steps": 12, "train.log_every": 1, "train.eval_every": 6,
        "train.checkpoint_every": 5, "train.batch_size": 8,
    }  # fmt: skip
    assert pretrain(settings(rows, **changes, **{"mesh.data": 1}), tmp_path / "one").finished
    for sizes, last in STAGES:
        config = settings(rows, **changes, **{f"mesh.{axis}": size for axis, size in sizes.items()})
        steps = itertools.count(newest(tmp_path / "many"))
        outcome = pretrain(config, tmp_path / "many", should_stop=lambda steps=steps, last=last: next(steps) >= last)
        assert outcome.step == last
    for kind, count in (("train", 12), ("validation", 2)):
        one, many = events(tmp_path / "one", kind), events(tmp_path / "many", kind)
        assert len(one) == count and one.keys() == many.keys()
        for step, loss in one.items():
            assert many[step] == pytest.approx(loss, rel=1e-6), step
    ends = read_params(tmp_path / "one")[0], read_params(tmp_path / "many")[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=5e-6), *ends)
