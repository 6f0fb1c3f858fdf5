"""The mesh of devices, and which axis of an array lies along which of its axes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from jax.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from posenc_jax.config import MeshConfig
from posenc_jax.errors import UsageError

AXES = ("data", "fsdp", "tensor")
BATCH_AXES = ("data", "fsdp")
"""Rows of a batch are spread over these."""

RULES = (
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("feed_forward", "tensor"),
    ("embed", "fsdp"),
    ("embed_out", None),
    ("embed_in", None),
    ("heads_in", None),
    ("groups", None),
    ("slots", None),
    ("type", None),
    ("head_width", None),
    ("layers", None),
    ("norm", None),
    ("position", None),
    ("bucket", None),
    ("classes", None),
)
"""Logical axis of a parameter -> mesh axis."""


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Devices (all of them by default) as a mesh of `AXES`, neighbours on the network beside each other.

    Several slices, groups of devices with a fast network of their own, lie along "data", whose traffic is the least.
    Raises `UsageError` when the sizes do not multiply to the number of devices, or a slice would be cut.
    """
    devices = jax.devices() if devices is None else devices
    fixed = config.fsdp * config.tensor
    data = len(devices) // fixed if config.data == -1 else config.data
    if data * fixed != len(devices) or data < 1:
        raise UsageError(
            f"mesh.data={config.data} x mesh.fsdp={config.fsdp} x mesh.tensor={config.tensor} does not make the "
            f"{len(devices)} devices that are here"
        )
    sizes, types = (data, config.fsdp, config.tensor), (AxisType.Auto,) * len(AXES)
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        grid = create_device_mesh(sizes, devices, allow_split_physical_axes=True)
        return Mesh(grid, AXES, axis_types=types)
    if data % slices:
        raise UsageError(
            f"mesh.data={data} is not divisible by the {slices} slices that the devices make; mesh.fsdp="
            f"{config.fsdp} x mesh.tensor={config.tensor} must fit into the {len(devices) // slices} devices of one"
        )
    within, across = (data // slices, config.fsdp, config.tensor), (slices, 1, 1)
    grid = create_hybrid_device_mesh(within, across, devices, allow_split_physical_axes=True)
    return Mesh(grid, AXES, axis_types=types)


class RowShare(NamedTuple):
    """The part of every global batch that one process reads: the `index`-th of `count` equal ones."""

    index: int
    count: int


def row_share(mesh: Mesh, batch_size: int, process: int | None = None) -> RowShare:
    """What `process` (this one by default) must read of batches of `batch_size` rows, for `put_batch`.

    Processes between which a batch is not split, as the tensor axis lies across them, read the same part. Raises
    `UsageError` where the parts would be unequal or overlap.
    """
    process = jax.process_index() if process is None else process
    held: dict[int, set[int]] = {}
    for device, index in batch_sharding(mesh).devices_indices_map((batch_size,)).items():
        held.setdefault(device.process_index, set()).add(index[0].start or 0)
    shares = sorted({tuple(sorted(starts)) for starts in held.values()})
    if len({len(share) for share in shares}) > 1 or sum(map(len, shares)) > len(set().union(*shares)):
        axes = " x ".join(f"mesh.{axis}={mesh.shape[axis]}" for axis in AXES)
        raise UsageError(
            f"{axes} gives the {len(held)} processes unequal or overlapping parts of a batch; take a mesh.tensor that "
            "divides the devices of a process, or is a multiple of them"
        )
    return RowShare(shares.index(tuple(sorted(held[process]))), len(shares))


def check_batch(batch_size: int, accumulate: int, mesh: Mesh, name: str = "train.batch_size") -> None:
    """Raises `UsageError` unless every device gets equally many rows of every slice of the batch; `name` is what the
    user calls its size."""
    shares = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    if batch_size % (shares * accumulate):
        raise UsageError(
            f"{name}={batch_size} is not divisible by {shares} devices x train.accumulate={accumulate}; "
            f"{shares * accumulate * max(1, round(batch_size / (shares * accumulate)))} is the nearest that is"
        )


def param_shardings(boxed: Any, mesh: Mesh) -> Any:
    """Shardings of a tree whose leaves carry logical axis names (Flax boxes), in the unboxed tree's shape."""
    return nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Leading axis over `BATCH_AXES`, the others whole."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """The same on every device."""
    return NamedSharding(mesh, PartitionSpec())


def put_batch(batch: Mapping[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """This process's rows of a batch -> global arrays with all processes' rows."""
    sharding = batch_sharding(mesh)
    return {name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()}
