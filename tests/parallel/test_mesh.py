import types

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from posenc_jax.config import MeshConfig
from posenc_jax.errors import UsageError
from posenc_jax.parallel.mesh import AXES, RULES, constrain, gathered, make_mesh, replicated, row_share


class Device(types.SimpleNamespace):
    """As much of a device of another machine as a mesh asks for."""

    platform, device_kind, client = "cpu", "cpu", None

    def __hash__(self):
        return self.id

    def __repr__(self):
        return f"device {self.id}"


def devices(count, per_process=1, per_slice=None):
    return [Device(id=i, process_index=i // per_process, slice_index=i // (per_slice or count)) for i in range(count)]


def mesh_of(found, data=-1, fsdp=1, tensor=1):
    return make_mesh(MeshConfig(data, fsdp, tensor), found)


@pytest.mark.parametrize("fsdp, tensor", [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (1, 4), (4, 4)])
def test_processes_read_disjoint_parts_that_are_the_whole_batch(fsdp, tensor):
    mesh = mesh_of(devices(16, per_process=4), fsdp=fsdp, tensor=tensor)
    shares = [row_share(mesh, 32, process) for process in range(4)]
    assert {share.count for share in shares} == {4}
    assert [share.index for share in shares] == [0, 1, 2, 3]


@pytest.mark.parametrize("tensor, groups", [(8, [0, 0, 1, 1]), (16, [0, 0, 0, 0])])
def test_processes_that_hold_the_same_rows_read_the_same_part(tensor, groups):
    mesh = mesh_of(devices(16, per_process=4), tensor=tensor)
    shares = [row_share(mesh, 32, process) for process in range(4)]
    assert [share.index for share in shares] == groups
    assert {share.count for share in shares} == {max(groups) + 1}


def test_rows_of_a_process_need_not_lie_together():
    """As on a torus whose ring does not pass the machines one by one."""
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    grid = np.array(devices(8, per_process=4), dtype=object)[order].reshape(8, 1, 1)
    mesh = Mesh(grid, AXES, axis_types=(AxisType.Auto,) * 3)
    assert [row_share(mesh, 8, process) for process in (0, 1)] == [(0, 2), (1, 2)]


def test_a_mesh_that_would_cut_a_process_across_parts_is_refused():
    with pytest.raises(UsageError, match=r"mesh.tensor=2 gives the 2 processes unequal or overlapping parts"):
        row_share(mesh_of(devices(6, per_process=3), tensor=2), 6, 0)


def test_one_process_reads_everything():
    assert row_share(make_mesh(MeshConfig(fsdp=2, tensor=2)), 16) == (0, 1)


def test_slices_lie_along_data():
    grid = mesh_of(devices(16, per_process=4, per_slice=8), fsdp=2, tensor=2).devices
    assert grid.shape == (4, 2, 2)
    assert [{device.slice_index for device in part.flat} for part in grid] == [{0}, {0}, {1}, {1}]


@pytest.mark.parametrize("fsdp, tensor", [(16, 1), (1, 16), (4, 4)])
def test_a_mesh_that_would_cut_a_slice_is_refused(fsdp, tensor):
    with pytest.raises(UsageError, match=r"mesh.data=1 is not divisible by the 2 slices.*the 8 devices of one"):
        mesh_of(devices(16, per_slice=8), fsdp=fsdp, tensor=tensor)


@pytest.mark.parametrize("data, fsdp, tensor", [(3, 1, 1), (-1, 3, 1), (8, 2, 1), (-1, 16, 1), (4, 1, 1)])
def test_sizes_that_do_not_make_the_devices_are_refused(data, fsdp, tensor):
    with pytest.raises(UsageError, match=f"mesh.fsdp={fsdp} x mesh.tensor={tensor} does not make the 8 devices"):
        make_mesh(MeshConfig(data, fsdp, tensor))


def test_axes_are_left_to_the_compiler():
    """JAX's own default of late is axes in the types of arrays, which ordinary code cannot be traced with."""
    assert set(make_mesh(MeshConfig()).axis_types) == {AxisType.Auto}
    assert jax.device_count() == 8


def shard_of(function, mesh, shape):
    def inside(x):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(x)

    x = jax.device_put(np.ones(shape, np.float32), replicated(mesh))
    return jax.jit(inside)(x).sharding.shard_shape(shape)


@pytest.mark.parametrize(
    "names, shape, shard",
    [
        (("batch", "length", "width"), (16, 6, 8), (4, 6, 8)),
        (("batch", "heads", "length", "length"), (16, 4, 6, 6), (4, 2, 6, 6)),
        (("batch", "length", "vocab"), (16, 6, 10), (4, 6, 5)),
        (("embed", "feed_forward"), (8, 4), (4, 2)),
        (("batch", "heads"), (1, 4), (1, 2)),  # one row for all
        (("heads", None), (3, 4), (3, 4)),  # parameters of such sizes are refused before
    ],
)
def test_arrays_lie_as_the_names_of_their_axes_say(names, shape, shard):
    mesh = make_mesh(MeshConfig(fsdp=2, tensor=2))
    assert shard_of(lambda x: constrain(x, *names), mesh, shape) == shard


def test_a_parameter_is_whole_over_fsdp_in_use_and_its_gradient_cut():
    mesh = make_mesh(MeshConfig(data=1, fsdp=4, tensor=2))
    assert shard_of(lambda x: gathered(x, "embed", "heads"), mesh, (8, 4)) == (8, 2)
    gradient = jax.grad(lambda x: (gathered(x, "embed", "heads") ** 2).sum())
    assert shard_of(gradient, mesh, (8, 4)) == (2, 2)


def test_without_a_mesh_or_with_one_device_nothing_is_added_to_a_program():
    def program(function):
        return jax.jit(function).lower(np.ones((4, 4), np.float32)).as_text()

    def constrained(x):
        return constrain(x, "batch", "width")

    plain = program(lambda x: x + 0).replace("lambda", "constrained")
    assert "sharding" not in program(constrained) and len(program(constrained)) <= len(plain)
    with jax.sharding.use_abstract_mesh(make_mesh(MeshConfig(), jax.devices()[:1]).abstract_mesh):
        assert "sharding_constraint" not in program(constrained)


def test_a_name_without_a_rule_is_a_mistake():
    mesh = make_mesh(MeshConfig(fsdp=2))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), pytest.raises(KeyError, match="wide"):
        constrain(np.ones((2, 2)), "batch", "wide")
    assert len(dict(RULES)) == len(RULES)
