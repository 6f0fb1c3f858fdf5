"""The mesh of devices, and which axis of an array lies along which of its axes."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
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
    # Parameters and activations.
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("feed_forward", "tensor"),
    # Parameters.
    ("embed", "fsdp"),
    ("embed_out", None),
    ("embed_in", None),
    ("heads_out", None),
    ("groups", None),
    ("slots", None),
    ("type", None),
    ("head_width", None),
    ("layers", None),
    ("norm", None),
    ("position", None),
    ("bucket", None),
    ("classes", None),
    # Activations.
    ("batch", BATCH_AXES),
    ("length", None),
    ("width", None),
)
"""Logical axis of an array -> mesh axes. Parameters are spread over "fsdp" at rest and gathered where they are used;
what "tensor" cuts stays cut, and the sums over it meet once a block."""


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


def check_mesh(boxed: Any, mesh: Mesh) -> None:
    """Raises `UsageError` where an axis of a parameter does not divide into its mesh axis; `boxed` is a tree whose
    leaves carry logical axis names (Flax boxes). JAX would say so later, and not whose size it is."""
    rules = dict(RULES)
    leaves = jax.tree_util.tree_leaves_with_path(boxed, is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned))
    for path, leaf in leaves:
        if not isinstance(leaf, nn.LogicallyPartitioned):
            continue
        for name, size in zip(leaf.names, leaf.value.shape, strict=True):
            axis = rules[name] if name else None
            if axis and size % mesh.shape[axis]:
                where = jax.tree_util.keystr(path, simple=True, separator="/").removesuffix("/value")
                raise UsageError(_does_not_divide(where, name, size, axis, mesh.shape[axis]))


def _does_not_divide(where: str, name: str, size: int, axis: str, devices: int) -> str:
    fields = {
        "vocab": "model.vocab_size",
        "heads": "model.heads, in mixed layers divided by model.convolution.head_ratio",
        "feed_forward": "model.feed_forward_width",
        "embed": "model.width, or model.embedding_width",
    }[name]
    if where.startswith("generator/") and name != "vocab":
        fields += ", times rtd.generator_size"
    mend = f"take mesh.{axis}={math.gcd(size, devices)}"
    if name == "vocab":
        mend = f"model.vocab_size={-(-size // devices) * devices} does, its last rows idle; or {mend}"
    return (
        f"mesh.{axis}={devices} does not divide {size}, the axis {name!r} of the parameter {where} ({fields}); {mend}"
    )


def param_shardings(boxed: Any, mesh: Mesh) -> Any:
    """Shardings of a tree whose leaves carry logical axis names (Flax boxes), in the unboxed tree's shape."""
    return nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)


def constrain(x: jax.Array, *names: str | None) -> jax.Array:
    """`x`, whose axes have these names, laid onto the mesh that the computation runs on (`jax.set_mesh`, or a step's).

    The same array where there is no such mesh, or one device. An axis that the mesh axis does not divide, such as one
    row for all, stays whole.
    """
    mesh = jax.sharding.get_abstract_mesh()
    cut = [axis for axis in mesh.axis_names if is_cut(mesh, axis)]
    if not cut:
        return x
    rules, spec = dict(RULES), []
    for name, size in zip(names, x.shape, strict=True):
        axes = rules[name] if name else None
        axes = tuple(axis for axis in ((axes,) if isinstance(axes, str) else axes or ()) if axis in cut)
        spec.append(axes if axes and size % math.prod(mesh.shape[axis] for axis in axes) == 0 else None)
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*spec))


def is_cut(mesh: jax.sharding.AbstractMesh, axis: str) -> bool:
    """Whether the compiler may lay arrays over several devices along `axis`: not where the computation is written for
    one device's part already."""
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return kinds.get(axis) == AxisType.Auto and mesh.shape[axis] > 1


def gathered(parameter: jax.Array, *names: str | None) -> jax.Array:
    """A parameter whose axes have these names, whole along those that lie over "fsdp": as a layer computes with it.

    Its gradient is cut as the parameter is, so that a device keeps the sum of its own part alone.
    """
    return _gathered(parameter, names)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _gathered(parameter: jax.Array, names: tuple[str | None, ...]) -> jax.Array:
    rules = dict(RULES)
    return constrain(parameter, *(None if name and rules[name] == "fsdp" else name for name in names))


_gathered.defvjp(
    lambda parameter, names: (_gathered(parameter, names), None),
    lambda names, _, gradient: (constrain(gradient, *names),),
)


def first_row(rows: int) -> jax.Array | int:
    """Number in the batch of the first of `rows` rows that this part of a computation holds."""
    mesh = jax.sharding.get_abstract_mesh()
    is_own_part = ("data", AxisType.Manual) in zip(mesh.axis_names, mesh.axis_types, strict=True)
    return jax.lax.axis_index("data") * rows if is_own_part else 0


def row_by_row(function: Callable[[Any, Any], Any], mesh: Mesh) -> Callable[[Any, Any], Any]:
    """`function(whole, rows)` that does with each row the same whatever others there are, done where the rows lie."""
    if mesh.size == 1:
        return function
    rows = PartitionSpec(BATCH_AXES)
    return jax.shard_map(function, mesh=mesh, in_specs=(PartitionSpec(), rows), out_specs=rows, check_vma=False)


def summed_over_data(function: Callable[[Any, Any], Any], mesh: Mesh) -> Callable[[Any, Any], Any]:
    """`function(whole, rows)` whose results add up over the rows, such as a gradient.

    Each part of the "data" axis sums over its own rows, however many slices it takes for that, and the sums meet once
    at the end. The axes "fsdp" and "tensor" stay the compiler's inside.
    """
    if mesh.shape["data"] == 1:
        return function
    return jax.shard_map(
        lambda whole, rows: jax.lax.psum(function(whole, rows), "data"),
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("data")),
        out_specs=PartitionSpec(),
        axis_names={"data"},
        check_vma=False,
    )


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
