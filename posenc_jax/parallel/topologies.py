"""TPU topologies by name, for compiling where there is no TPU."""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posenc_jax.errors import UsageError, UserError

if TYPE_CHECKING:
    import jax

_AXES = {"v4": 3, "v5e": 2, "v5p": 3, "v6e": 2, "tpu7x": 3}
"""Generation -> sizes in the name of a topology: a torus or a cube of chips."""
FORMS = "v5e:2x4, v5e:16x16, v6e:2x4 (chips as AxB), v4:2x2x1, v5p:2x2x1, tpu7x:2x2x1 (AxBxC)"

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",  # where the program is traced
    "TPU_SKIP_MDS_QUERY": "1",  # do not ask the network who we are
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no TPU is held, so nobody is in the way
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",  # only silences a question; a topology's name says what is compiled for
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_STDERR_LOG_LEVEL": "2",
    "TPU_MIN_LOG_LEVEL": "2",
}


@dataclasses.dataclass(frozen=True)
class Topology:
    """So many slices of chips of one generation, each a grid with a fast network."""

    chip: str
    grid: tuple[int, ...]
    slices: int = 1

    @property
    def name(self) -> str:
        return f"{self.chip}:{'x'.join(map(str, self.grid))}"

    @property
    def chips(self) -> int:
        return math.prod(self.grid) * self.slices

    def __str__(self) -> str:
        return self.name if self.slices == 1 else f"{self.slices} slices of {self.name}"


def parse_topology(text: str, slices: int = 1) -> Topology:
    """ "v5e:2x4" -> a topology. Raises `UsageError` for one that no TPU has the form of."""
    chip, _, sizes = text.strip().lower().partition(":")
    if chip not in _AXES or not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3})*", sizes):
        raise UsageError(f"no TPU topology is called {text!r}; names are {FORMS}")
    grid = tuple(map(int, sizes.split("x")))
    if len(grid) != _AXES[chip]:
        raise UsageError(f"a {chip} topology has {_AXES[chip]} sizes, and {text!r} has {len(grid)}; names are {FORMS}")
    if slices < 1:
        raise UsageError(f"--slices={slices} must be at least 1")
    return Topology(chip, grid, slices)


def topology_devices(topology: Topology) -> Sequence["jax.Device"]:
    """The devices to compile for, in a process that has `compiler_environment`. Raises `UsageError` where no machine
    has that topology, `UserError` where the compiler cannot be loaded."""
    import jax
    from jax.experimental import topologies

    check_compiler()
    options: dict[str, object] = {"num_slices": topology.slices}
    if topology.chip in ("v4", "v5p"):
        options["chip_config_name"] = "megacore"  # as Cloud TPUs come: the two cores of a chip are one device
    if math.prod(topology.grid) == 1:
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology.name, **options).devices
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).partition("\n")[0]
        if "lockfile" in reason or "already in use" in reason:
            raise UserError(f"another process holds libtpu ({reason}); end it, or wait, and try again") from None
        raise UsageError(f"no machine has the topology {topology.name} ({reason}); names are {FORMS}") from None


def check_compiler() -> None:
    """Raises `UserError` unless libtpu, which holds the compiler, is installed."""
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("libtpu, which compiles for TPUs, is not installed; pip install '.[preflight]'")


def compiler_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process that compiles for TPUs on a machine without one."""
    kept = {
        name: value for name, value in environment.items() if name not in ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    }
    here = str(Path(__file__).resolve().parent.parent.parent)
    paths = [here, *filter(None, [environment.get("PYTHONPATH")])]
    return {**kept, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
