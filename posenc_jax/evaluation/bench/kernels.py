"""Our Pallas kernels against the plain path: what each moves in HBM, compiled for a TPU on a machine without one.

Run as a module it is the process that compiles: libtpu reads its environment once.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from posenc_jax.errors import UsageError, UserError
from posenc_jax.evaluation.bench.kernel_cases import CASES, Case, Shape
from posenc_jax.evaluation.tables import Table
from posenc_jax.parallel.hbm import hbm_bytes
from posenc_jax.parallel.topologies import (
    Topology,
    check_compiler,
    compiler_environment,
    parse_topology,
    topology_devices,
)

_UTILIZATION = "final_hlo-static-per-bundle-utilization.txt"
_CALL = re.compile(r"^\s*(?:ROOT )?%?(\S+) = .* custom-call.*custom_call_target=\"tpu_custom_call\"", re.M)

# ---- the process that compiles ------------------------------------------------------------------------------------


def measured(case: Case, side: str, mesh: Mesh, dump: Path | None = None) -> dict[str, Any]:
    """Facts of one side, "kernel" or "plain": bytes moved, bytes of temporaries, names of the kernels' calls, and
    where the compiler leaves its dump the bundles of each, in the order of the passes."""
    f, inputs = getattr(case, side), getattr(case, f"{side}_inputs")
    facts = {"name": case.name, "minimum": case.minimum}
    if f is None:
        return facts
    compiled = _compiled(f, inputs, mesh)
    text = compiled.as_text()
    calls = sorted(_CALL.findall(text), key=lambda call: "transpose" in call)
    facts[side] = {
        "bytes": hbm_bytes(text), "temporaries": compiled.memory_analysis().temp_size_in_bytes, "calls": calls,
        "bundles": [counted for call in calls if dump and (counted := _bundles(dump, call))],
    }  # fmt: skip
    return facts


def _compiled(f: Callable, inputs: Sequence[Shape], mesh: Mesh) -> Any:
    whole = NamedSharding(mesh, PartitionSpec())
    given = [jax.ShapeDtypeStruct(shape, dtype, sharding=whole) for shape, dtype in inputs]
    graded = [x for x in given if jnp.issubdtype(x.dtype, jnp.floating)]

    def both(g: jax.Array, *given: jax.Array) -> Any:
        out, gradients = jax.vjp(lambda *x: f(*x, *given[len(graded) :]), *given[: len(graded)])
        # In a model the other layers stand between the two passes: what one has read, the other reads again.
        out, gradients, g = jax.lax.optimization_barrier((out, gradients, g))
        return out, gradients(g)

    with jax.set_mesh(mesh):
        return jax.jit(both).lower(given[0], *given).compile()


def _bundles(dump: Path, call: str) -> int | None:
    """Instruction words of a kernel; None where this compiler wrote none."""
    files = sorted(dump.glob(f"*-{call}-*{_UTILIZATION}"), key=lambda file: file.stat().st_mtime)
    if not files:
        return None
    return sum(line[:1].isdigit() for line in files[-1].read_text().partition("UTILIZATION:")[2].splitlines())


def _worker(topology: str, kernels: str, side: str, dump: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        mesh = Mesh(np.array(topology_devices(parse_topology(topology))[:1]), ("all",))
        for case in itertools.chain(*(CASES[kernel]() for kernel in kernels.split(","))):
            facts = measured(case, side, mesh, Path(dump) if dump else None)
            print(json.dumps(facts), file=answers, flush=True)
    except UserError as error:
        print(json.dumps({"refused": str(error), "exit_code": error.exit_code}), file=answers, flush=True)


# ---- the command's side -------------------------------------------------------------------------------------------


def kernel_facts(topology: Topology, kernels: Sequence[str] = tuple(CASES)) -> Iterator[dict[str, Any]]:
    """`measured` of both sides of every case of these `kernels`, one by one. Raises `UserError` where the compiler
    cannot be loaded or fails."""
    for sides in zip(*(side_facts(topology, kernels, side) for side in ("plain", "kernel")), strict=True):
        yield sides[0] | sides[1]


def side_facts(topology: Topology, kernels: Sequence[str], side: str) -> Iterator[dict[str, Any]]:
    """`measured` of one side of every case, from a process of its own."""
    check_compiler()
    with tempfile.TemporaryDirectory() as folder:
        # The plain side has no kernels to count, and its dump would be gigabytes.
        yield from _answers(topology, kernels, side, folder if side == "kernel" else "")


def _answers(topology: Topology, kernels: Sequence[str], side: str, dump: str) -> Iterator[dict[str, Any]]:
    environment = compiler_environment()
    if dump:
        wanted = f"--xla_jf_dump_to={dump} --xla_jf_dump_llo_text=true"
        environment["LIBTPU_INIT_ARGS"] = f"{environment.get('LIBTPU_INIT_ARGS', '')} {wanted}".strip()
    program = [sys.executable, "-m", "posenc_jax.evaluation.bench.kernels"]
    command = [*program, topology.name, ",".join(kernels), side, dump]
    with (
        tempfile.TemporaryFile("w+", errors="replace") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        try:
            for line in process.stdout:
                facts = json.loads(line)
                if "refused" in facts:
                    raise (UsageError if facts["exit_code"] == UsageError.exit_code else UserError)(facts["refused"])
                yield facts
        except BaseException:
            process.kill()
            raise
        if process.wait():
            log.seek(0)
            last = [line.strip() for line in log if line.strip()][-1:] or ["it said nothing"]
            raise UserError(f"the process that compiles for {topology} failed; its last words: {last[0][:300]}")


def kernel_table(facts: Sequence[dict[str, Any]], topology: Topology) -> Table:
    """A line a case. Megabytes are 10^6 bytes."""

    def megabytes(one: dict[str, Any], side: str, what: str, form: str) -> str:
        return format(one[side][what] / 1e6, form) if side in one else ""

    rows = []
    for one in facts:
        ratio = f"{one['plain']['bytes'] / one['kernel']['bytes']:.2f} x" if "plain" in one else ""
        rows.append(
            (
                one["name"],
                f"{one['minimum'] / 1e6:,.1f}",
                megabytes(one, "kernel", "bytes", ",.1f"),
                megabytes(one, "plain", "bytes", ",.1f"),
                ratio,
                f"{one['kernel']['bytes'] / one['minimum']:.3f}",
                megabytes(one, "kernel", "temporaries", ",.1f"),
                megabytes(one, "plain", "temporaries", ",.1f"),
                " / ".join(f"{bundles:,}" for bundles in one["kernel"]["bundles"]),
            )
        )
    caption = (
        f"Forward and backward pass in bfloat16, compiled for one device of {topology}. Megabytes (10^6 bytes) read "
        "and written in HBM, counted in the compiled program, in whole tiles. Minimum: what each pass is given and "
        "returns, once: 11 arrays as large as the output, and a bias three times in float32. Bundles: instruction "
        "words of one program, forward / backward, a row of the batch at a time (attention: two heads of a row)."
    )
    columns = (
        "kernel", "minimum", "ours", "XLA", "XLA / ours", "ours / minimum", "temporaries", "XLA's", "bundles",
    )  # fmt: skip
    return Table(caption, columns, rows, numbers=columns[1:])


if __name__ == "__main__":
    _worker(*sys.argv[1:])
