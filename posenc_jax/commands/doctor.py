"""`doctor`: what this machine has, what is missing, and the mend."""

import argparse
import dataclasses
import importlib.util
import os
import platform
import shutil
import sys
import time
from importlib import metadata
from pathlib import Path

from posenc_jax.errors import DONE, FAILED
from posenc_jax.parallel import hosts

LEAST_PYTHON = (3, 11)
LIBTPU_LOCK = Path("/tmp/libtpu_lockfile")
"""A process that uses the TPU holds it; one that was killed may leave it behind."""
VARIABLES = (
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "TPU_NAME", "TPU_WORKER_ID"),
    *("TPU_WORKER_HOSTNAMES", "MEGASCALE_NUM_SLICES", "SLURM_JOB_ID", "OMPI_COMM_WORLD_SIZE"),
)
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line. `ok` None: something that is good to know, or wanted for one command only."""

    ok: bool | None
    what: str
    detail: str
    mend: str = ""

    def line(self) -> str:
        mark = {True: "ok", False: "missing", None: "-"}[self.ok]
        return f"{mark:<8} {self.what:<24} {self.detail}" + (f": {self.mend}" if self.mend else "")


def main(argv: list[str]) -> int:
    argparse.ArgumentParser(
        prog="python -m posenc_jax doctor",
        description="Checks versions, devices and room on this machine; ends with 0 when all that is needed is there, "
        "else with 1.",
    ).parse_args(argv)
    whole = True
    for check in (_python, _packages, _machine, _processes, _devices, _optional):
        for finding in check():
            print(finding.line(), flush=True)
            whole = whole and finding.ok is not False
    print("all that is needed is here" if whole else "mend what is missing, then ask again")
    return DONE if whole else FAILED


def _python() -> list[Finding]:
    ok = sys.version_info >= LEAST_PYTHON
    mend = "" if ok else "make PYTHON=python3.12 .venv/.runtime, where Python 3.11 or newer is installed"
    return [Finding(ok, "python", f"{platform.python_version()} at {sys.executable}", mend)]


# ---- packages -----------------------------------------------------------------------------------------------------


def _packages() -> list[Finding]:
    """Every requirement and what is installed of it."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return [Finding(False, "packaging", "not installed", "pip install -r requirements.txt")]
    found = [requirement_finding(Requirement(line)) for line in requirements()]
    brought_along = [Finding(None, name, _version(name) or "not installed") for name in ("jaxlib", "numpy")]
    return [*found, *brought_along]


def requirements() -> list[str]:
    """Lines of requirements.txt: of the repository, or as they were when this package was installed."""
    file = Path(__file__).resolve().parents[2] / "requirements.txt"
    if file.is_file():
        lines = [line.partition("#")[0].strip() for line in file.read_text("utf-8").splitlines()]
        return [line for line in lines if line]
    return [line for line in metadata.requires("posenc_jax") or [] if "extra ==" not in line]


def requirement_finding(requirement) -> Finding:
    version, wanted = _version(requirement.name), str(requirement.specifier)
    if not version:
        return Finding(False, requirement.name, "not installed", f"pip install '{requirement}'")
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(False, requirement.name, f"{version}, but {wanted} is wanted", f"pip install '{requirement}'")
    return Finding(True, requirement.name, version)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


# ---- machine ------------------------------------------------------------------------------------------------------


def _machine() -> list[Finding]:
    free = shutil.disk_usage(Path.cwd()).free
    writable = os.access(Path.cwd(), os.W_OK)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        Finding(None, "system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        Finding(None, "cores", f"{cores}"),
        Finding(None, "memory", _memory()),
        Finding(
            free > GIB,
            "disk",
            f"{free / GIB:.1f} GiB free in {Path.cwd()}",
            "" if free > GIB else "a quickstart wants 1 GiB; free some, or go to another folder",
        ),
        Finding(
            writable,
            "this folder",
            "can be written" if writable else "is read-only",
            "" if writable else "name --out elsewhere",
        ),
    ]


def _memory() -> str:
    try:
        total, free = (
            os.sysconf("SC_PAGE_SIZE") * os.sysconf(name) / GIB for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES")
        )
    except (ValueError, OSError):
        return "unknown"
    return f"{total:.1f} GiB, {free:.1f} of them unused"


def _processes() -> list[Finding]:
    """What a run in several processes would go by on this machine."""
    found = hosts.of_machine()
    who = "" if found is None or found.index is None else f", this is {found.index}"
    named = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    port = int(os.environ.get("JAX_COORDINATOR_PORT") or hosts.PORT)
    taken = hosts.why_taken(port)
    libtpu = _version("libtpu") or "not installed"
    return [
        Finding(None, "host", platform.node()),
        Finding(None, "hosts of a run", f"{found.name} says {found.count}{who}" if found else "no cluster says any"),
        Finding(None, "told by variables", ", ".join(named) or "nothing"),
        Finding(
            None if taken else True,
            "coordinator port",
            f"{port} is taken ({taken})" if taken else f"{port} is free",
            "name another with --coordinator-port" if taken else "",
        ),
        Finding(None, "libtpu", libtpu + (f", {LIBTPU_LOCK} is there" if LIBTPU_LOCK.exists() else "")),
    ]


def _devices() -> list[Finding]:
    """Starts JAX, and multiplies matrices for a second."""
    asked = os.environ.get("JAX_PLATFORMS") or "not set"
    try:
        import jax

        devices = jax.devices()
        speed = _matmul_gflops(jax)
    except Exception as error:  # whatever a broken installation or a driver raises
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        mend = (
            "JAX_PLATFORMS=cpu works without an accelerator; for one see the extras `cuda` and `tpu` in pyproject.toml"
        )
        return [Finding(False, "devices", f"JAX finds none ({reason}; JAX_PLATFORMS {asked})", mend)]
    kinds = f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})"
    return [
        Finding(True, "devices", f"{kinds}, {jax.local_device_count()} of them here; JAX_PLATFORMS {asked}"),
        Finding(True, "processes", f"this is {jax.process_index()} of {jax.process_count()}"),
        Finding(
            speed is not None,
            "matrix product",
            "gives wrong numbers" if speed is None else f"right, {speed:,.0f} GFLOP/s in float32 on one device",
            "do not train here before that is mended" if speed is None else "",
        ),
    ]


def _matmul_gflops(jax) -> float | None:
    """Speed of a 1024 x 1024 product over a second; None when the product is wrong."""
    size, count = 1024, 0
    ones = jax.numpy.ones((size, size), jax.numpy.float32)
    product = jax.jit(lambda x: x @ ones)
    if not bool((product(ones) == size).all()):
        return None
    began = time.perf_counter()
    while (seconds := time.perf_counter() - began) < 1:
        product(ones).block_until_ready()
        count += 1
    return 2 * size**3 * count / seconds / 1e9


# ---- what only some commands want -----------------------------------------------------------------------------------


def _optional() -> list[Finding]:
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    bench = f"{' and '.join(missing)} not installed" if missing else "torch and transformers are here"
    tfds = os.environ.get("TFDS_DATA_DIR")
    return [
        Finding(None, "bench", bench, f"pip install {' '.join(missing)}, to compare speeds" if missing else ""),
        Finding(None, "TFDS_DATA_DIR", tfds or "not set; sources `tfds:` are looked for in ~/tensorflow_datasets"),
    ]
