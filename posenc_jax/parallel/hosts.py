"""How many processes the machine says a run has. JAX's own detection joins them; this decides whether to ask it."""

import importlib.util
import os
import socket
import urllib.request
from pathlib import Path
from typing import NamedTuple

METADATA = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/"
PORT = 8482
"""Where processes meet unless told: JAX's own port on Cloud TPU. A firewall between the hosts must pass it."""

SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
"""JAX goes by Slurm where a step, `srun`, has set all of these."""


class Found(NamedTuple):
    """`index` None: JAX finds it out."""

    name: str
    count: int
    index: int | None = None


def of_machine() -> Found | None:
    """What Slurm, Open MPI, GKE or Cloud TPU says, in this order; None where none of them is here."""
    if all(name in os.environ for name in SLURM):
        return Found("Slurm", int(os.environ["SLURM_NTASKS"]), int(os.environ["SLURM_PROCID"]))
    if "OMPI_MCA_orte_hnp_uri" in os.environ:
        rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
        return Found("Open MPI", size, rank)
    if not has_tpu():
        return None
    workers = os.environ.get("TPU_PROCESS_ADDRESSES") or os.environ.get("TPU_WORKER_HOSTNAMES")
    name = "GKE" if workers else "Cloud TPU"
    if not workers and "TPU_SKIP_MDS_QUERY" not in os.environ:
        workers = _attribute("worker-network-endpoints")
    if not workers:
        return None
    slices = os.environ.get("MEGASCALE_NUM_SLICES") or _tpu_env().get("MEGASCALE_NUM_SLICES") or "1"
    return Found(name, len(workers.split(",")) * int(slices))


def why_taken(port: int) -> str | None:
    """Why nothing can listen on a port of this machine; None where it is free."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def has_tpu() -> bool:
    """Whether JAX would start a TPU here: chips, libtpu, and no other platform asked for."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    chips = any(True for pattern in ("accel*", "vfio/[0-9]*") for _ in Path("/dev").glob(pattern))
    return chips and (not platforms or "tpu" in platforms) and importlib.util.find_spec("libtpu") is not None


def _tpu_env() -> dict[str, str]:
    lines = (_attribute("tpu-env") or "").splitlines() if "TPU_SKIP_MDS_QUERY" not in os.environ else []
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip().strip("'") for name, _, value in pairs}


def _attribute(name: str) -> str | None:
    """Of this virtual machine on Google Cloud; None elsewhere."""
    request = urllib.request.Request(METADATA + name, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=3) as answer:
            return answer.read().decode()
    except OSError:
        return None
