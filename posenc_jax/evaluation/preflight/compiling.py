"""The training step of a config, compiled for a TPU: what the compiler says of it. Runs in a process of its own."""

import functools
import math
import re
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from posenc_jax.config import Config
from posenc_jax.errors import UserError
from posenc_jax.model.encoder import check_encoder
from posenc_jax.objectives.cost import step_flops
from posenc_jax.objectives.pretraining import make_objective
from posenc_jax.objectives.rtd import generator_config
from posenc_jax.parallel.collectives import collectives
from posenc_jax.parallel.mesh import BATCH_AXES, batch_sharding, check_batch, make_mesh, row_share
from posenc_jax.parallel.topologies import Topology, topology_devices
from posenc_jax.training.optimizer import make_optimizer
from posenc_jax.training.state import abstract_state, count_parameters
from posenc_jax.training.step import make_train_step

_GIB = 2**30
_BALLAST_GIB = 256
"""More than any device has."""
_DRAFT = {"exec_time_optimization_effort": -1.0}


def compile_step(
    config: Config,
    length: int,
    topology: Topology,
    *,
    restarts: bool = False,
    memory_only: bool = False,
    draft: bool = False,
) -> dict[str, Any]:
    """Compiles one update of a run and returns plain facts, every size in bytes on one device.

    `model.vocab_size` must be set; `restarts`: rows hold several documents, and with them their positions.
    `memory_only` is some ten times faster: it asks for an array that fits nowhere beside the step, so the compiler
    refuses once it knows how much it would need, and makes no code. `draft` makes code in a third of the time, with
    less thought: it sends the same, and needs some tenths more or less memory. Raises `UsageError` as training would.
    """
    began = time.monotonic()
    mesh = make_mesh(config.mesh, topology_devices(topology))
    check_batch(config.train.batch_size, config.train.accumulate, mesh)
    row_share(mesh, config.train.batch_size, process=0)
    check_encoder(config.model, length)
    if config.objective == "rtd":
        check_encoder(generator_config(config.model, config.rtd), length)
    starts = None if config.mlm.unit == "token" else (True,) * config.model.vocab_size  # a table of the same size
    objective = make_objective(config, config.model.vocab_size, starts)
    optimizer = make_optimizer(config.optimizer, 1_000_000, 10_000)  # numbers in the program, of any size
    state = abstract_state(objective, optimizer, mesh)
    step = make_train_step(objective, optimizer, mesh, accumulate=config.train.accumulate, seed=config.train.seed)
    batch = _batch(config.train.batch_size, length, restarts, mesh)

    facts: dict[str, Any] = {
        "devices": mesh.size,
        "device_kind": mesh.devices.flat[0].device_kind,
        "mesh": dict(mesh.shape),
        "shares": math.prod(mesh.shape[axis] for axis in BATCH_AXES),
        "parameters": count_parameters(state.params),
        "parameter_bytes": _bytes(state.params),
        "state_bytes": _bytes(state),
        "available": available_memory(topology),
    }
    if memory_only:
        ballast = jax.ShapeDtypeStruct((_BALLAST_GIB, _GIB), jnp.int8, sharding=NamedSharding(mesh, PartitionSpec()))
        loaded = jax.jit(lambda state, batch, ballast: (step(state, batch), ballast), donate_argnums=(0, 2))
        _, refusal = _compile(loaded.lower(state, batch, ballast))
        facts["needed"] = refusal[0] - _BALLAST_GIB * _GIB
        facts["fits"] = facts["needed"] <= facts["available"]
    else:
        facts["flops"] = step_flops(config, length)._asdict()
        compiled, refusal = _compile(step.lower(state, batch), _DRAFT if draft else None)
        facts["fits"] = compiled is not None
        facts |= {"needed": refusal[0], "available": refusal[1]} if refusal else _read(compiled, mesh)
    return {**facts, "seconds": time.monotonic() - began}


def _batch(rows: int, length: int, restarts: bool, mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    shapes = {"tokens": (rows, length), "segments": (rows, length), "row": (rows,)}
    if restarts:
        shapes["positions"] = (rows, length)
    sharding = batch_sharding(mesh)
    return {name: jax.ShapeDtypeStruct(shape, jnp.int32, sharding=sharding) for name, shape in shapes.items()}


def _bytes(tree: Any) -> int:
    """Of one device's part."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * np.dtype(leaf.dtype).itemsize
        for leaf in jax.tree.leaves(tree)
    )


@functools.lru_cache
def available_memory(topology: Topology) -> int:
    """Bytes that a program may use on one device, by the compiler's own word: from its refusal of an array that fits
    nowhere."""
    device = NamedSharding(Mesh(np.array(topology_devices(topology)[:1]), ("all",)), PartitionSpec())
    ballast = jax.ShapeDtypeStruct((_BALLAST_GIB, _GIB), jnp.int8, sharding=device)
    _, refusal = _compile(jax.jit(jnp.sum).lower(ballast))
    return refusal[1]


def _compile(lowered: Any, options: Any = None) -> tuple[Any, tuple[int, int] | None]:
    """The program, or what it needs and what there is. Raises `UserError` where the compiler fails otherwise."""
    try:
        return lowered.compile(options), None
    except jax.errors.JaxRuntimeError as error:
        refusal = read_refusal(str(error))
        if refusal is None:
            raise UserError(f"the TPU compiler fails: {str(error).strip().partition(chr(10))[0][:500]}") from error
        return None, refusal


_SIZE = r"([\d.]+)([KMGT]?)"
_REFUSALS = (rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)", rf"Used {_SIZE} of {_SIZE} hbm")


def read_refusal(message: str) -> tuple[int, int] | None:
    """Bytes needed and available from the compiler's message that a program does not fit; None from another one."""
    found = next((match for form in _REFUSALS if (match := re.search(form, message))), None)
    if found is None:
        return None
    needed, available = (
        round(float(number) * 2 ** (10 * " KMGT".index(unit or " ")))
        for number, unit in (found.group(1, 2), found.group(3, 4))
    )
    return needed, available


def _read(compiled: Any, mesh: Mesh) -> dict[str, Any]:
    memory, text = compiled.memory_analysis(), compiled.as_text()
    kinds = {"arguments": "argument", "outputs": "output", "aliased": "alias", "temporaries": "temp"}
    sizes = {name: getattr(memory, f"{kind}_size_in_bytes") for name, kind in kinds.items()}
    whole = sizes["arguments"] + sizes["outputs"] - sizes["aliased"] + sizes["temporaries"]
    return {
        "needed": getattr(memory, "peak_memory_in_bytes", 0) or whole,
        "memory": {**sizes, "code": memory.generated_code_size_in_bytes},
        "collectives": [row._asdict() for row in collectives(text, mesh)],
        "pallas_kernels": pallas_kernels(text),
    }


def pallas_kernels(hlo_text: str) -> list[str]:
    """Names of the kernels of our own in a compiled program, each once."""
    calls = re.findall(
        r"^\s*(?:ROOT )?%?(\S+) = .* custom-call.*custom_call_target=\"tpu_custom_call\"", hlo_text, re.M
    )
    return sorted({re.sub(r"(\.\d+)+$", "", name) for name in calls})
