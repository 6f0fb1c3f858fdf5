"""The mesh of devices, and which axis of an array lies along which of its axes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
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
    """Devices (all of them by default) as a mesh of `AXES`. Raises `UsageError` when the sizes do not multiply to
    their number."""
    devices = jax.devices() if devices is None else devices
    fixed = config.fsdp * config.tensor
    data = len(devices) // fixed if config.data == -1 else config.data
    if data * fixed != len(devices) or data < 1:
        raise UsageError(
            f"mesh.data={config.data} x mesh.fsdp={config.fsdp} x mesh.tensor={config.tensor} does not make the "
            f"{len(devices)} devices that are here"
        )
    sizes = (data, config.fsdp, config.tensor)
    return jax.make_mesh(sizes, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


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
