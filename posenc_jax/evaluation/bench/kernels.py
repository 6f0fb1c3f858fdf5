"""Our Pallas kernels against the plain path: what each moves in HBM, compiled for a TPU on a machine without one.

Run as a module it is the process that compiles: libtpu reads its environment once.
"""

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
from posenc_jax.evaluation.bench.kernel_cases import Case, Shape, attention_cases, convolution_cases
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


def measured(case: Case, mesh: Mesh, dump: Path | None = None) -> dict[str, Any]:
    """Facts of both sides: bytes moved, bytes of temporaries, and the kernels' static bundles from the compiler's
    `dump`, by pass."""
    facts: dict[str, Any] = {"name": case.name, "minimum": case.minimum}
    for side, f, inputs in (("plain", case.plain, case.plain_inputs), ("kernel", case.kernel, case.kernel_inputs)):
        if f is not None:
            compiled = _compiled(f, inputs, mesh)
            text = compiled.as_text()
            temporaries = compiled.memory_analysis().temp_size_in_bytes
            facts[side] = {"bytes": hbm_bytes(text), "temporaries": temporaries, "calls": _CALL.findall(text)}
    facts["bundles"] = {}
    for call in facts["kernel"]["calls"]:
        counted = _bundles(dump, call) if dump else None
        if counted:
            facts["bundles"]["backward" if "transpose" in call else "forward"] = counted
    return facts


def _compiled(f: Callable, inputs: Sequence[Shape], mesh: Mesh) -> Any:
    whole = NamedSharding(mesh, PartitionSpec())
    given = [jax.ShapeDtypeStruct(shape, dtype, sharding=whole) for shape, dtype in inputs]
    graded = [x for x in given if jnp.issubdtype(x.dtype, jnp.floating)]

    def both(g: jax.Array, *given: jax.Array) -> Any:
        out, gradients = jax.vjp(lambda *x: f(*x, *given[len(graded) :]), *given[: len(graded)])
        return out, gradients(g)

    with jax.set_mesh(mesh):
        return jax.jit(both).lower(given[0], *given).compile()


def _bundles(dump: Path, call: str) -> int | None:
    """Instruction words of a kernel; None where this compiler wrote none."""
    files = sorted(dump.glob(f"*-{call}-*{_UTILIZATION}"), key=lambda file: file.stat().st_mtime)
    if not files:
        return None
    return sum(line[:1].isdigit() for line in files[-1].read_text().partition("UTILIZATION:")[2].splitlines())


def _worker(topology: str, dump: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        mesh = Mesh(np.array(topology_devices(parse_topology(topology))[:1]), ("all",))
        for case in (*convolution_cases(), *attention_cases()):
            print(json.dumps(measured(case, mesh, Path(dump))), file=answers, flush=True)
    except UserError as error:
        print(json.dumps({"refused": str(error), "exit_code": error.exit_code}), file=answers, flush=True)


# ---- the command's side -------------------------------------------------------------------------------------------


def kernel_facts(topology: Topology) -> Iterator[dict[str, Any]]:
    """`measured` of every case, one by one. Raises `UserError` where the compiler cannot be loaded or fails."""
    check_compiler()
    with tempfile.TemporaryDirectory() as dump, tempfile.TemporaryFile("w+", errors="replace") as log:
        environment = compiler_environment()
        wanted = f"--xla_jf_dump_to={dump} --xla_jf_dump_llo_text=true"
        environment["LIBTPU_INIT_ARGS"] = f"{environment.get('LIBTPU_INIT_ARGS', '')} {wanted}".strip()
        command = [sys.executable, "-m", "posenc_jax.evaluation.bench.kernels", topology.name, dump]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process:
            try:
                for line in process.stdout:
                    facts = json.loads(line)
                    if "refused" in facts:
                        raise (UsageError if facts["exit_code"] == UsageError.exit_code else UserError)(
                            facts["refused"]
                        )
                    yield facts
            except BaseException:
                process.kill()
                raise
        if process.returncode:
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
        both = [format(one["bundles"][way], ",") if way in one["bundles"] else "" for way in ("forward", "backward")]
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
                " / ".join(filter(None, both)),
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
