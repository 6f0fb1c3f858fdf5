"""One run in several processes: how they find each other, stop together, and end when one is lost."""

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from posenc_jax.errors import FAILED, PREEMPTED, UsageError, UserError, tell
from posenc_jax.parallel import hosts
from posenc_jax.storage import place

T = TypeVar("T")
LOST = re.compile(
    r"gloo|coordination service|heartbeat|connection (reset|closed|refused)|socket closed|peer|task.* died",
    re.IGNORECASE,
)
"""What JAX's errors say when it is another process that is gone."""


@dataclasses.dataclass(frozen=True)
class Processes:
    """Where the processes of a run meet. What is None is found out: see `start`."""

    coordinator: str | None = None
    """HOST or HOST:PORT of process 0."""
    count: int | None = None
    index: int | None = None
    port: int | None = None
    """Of the coordinator, where its address names none."""
    timeout: float = 180
    """Seconds in which all must have come."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that `from_arguments` reads."""
    group = parser.add_argument_group(
        "several processes",
        "Cloud TPU, GKE, Slurm and Open MPI say these themselves; elsewhere start the same line once a process. "
        "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID say the same.",
    )
    group.add_argument("--coordinator", metavar="HOST[:PORT]", help="where process 0 runs, seen from the others")
    group.add_argument("--processes", type=int, metavar="N", help="how many there are; 1 keeps this one alone")
    group.add_argument("--process-id", type=int, metavar="I", help="which of them this is, from 0")
    group.add_argument(
        "--coordinator-port", type=int, metavar="P", help=f"where --coordinator names none ({hosts.PORT})"
    )
    group.add_argument("--start-timeout", type=float, metavar="S", default=180, help="seconds to wait for all (180)")


def from_arguments(args: argparse.Namespace) -> Processes:
    """Flags, else the environment. Raises `UsageError` where a number is none."""

    def number(flag: int | None, variable: str) -> int | None:
        text = os.environ.get(variable)
        if flag is not None or not text:
            return flag
        if not text.isdecimal():
            raise UsageError(f"{variable}={text!r} is not a whole number")
        return int(text)

    return Processes(
        coordinator=args.coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS") or None,
        count=number(args.processes, "JAX_NUM_PROCESSES"),
        index=number(args.process_id, "JAX_PROCESS_ID"),
        port=number(args.coordinator_port, "JAX_COORDINATOR_PORT"),
        timeout=args.start_timeout,
    )


@contextlib.contextmanager
def together(processes: Processes) -> Iterator[None]:
    """`start`, then the body. Where there are several processes and the body fails, this one says why and ends at
    once, with 75 where another was lost: JAX would first wait minutes for all to end, and the others for this one."""
    import jax

    try:
        start(processes)
        yield
    except BaseException as error:
        if not jax.distributed.is_initialized():
            raise
        _leave(error)


def start(processes: Processes) -> None:
    """Joins this process to the others of its run, before any device is touched.

    Who they are comes from `processes`, else from what the machine says (Cloud TPU, GKE, Slurm, Open MPI; JAX's own
    detection does the rest), else there is one process and nothing is done. Raises `UsageError` or `UserError` where
    that cannot be; where the others do not come in time, ends this process with 1 and a sentence.
    """
    import jax

    found = hosts.of_machine()
    count = processes.count or (found.count if found else None)
    _check(processes, found)
    if count in (None, 1):
        return
    if jax.distributed.is_initialized():
        raise UserError("the processes of this run have been joined already; leave JAX's own initialize out")
    index = found.index if found and processes.index is None else processes.index
    address = _address(processes)
    if address and index == 0:
        _check_port(address)
    if processes.port:
        os.environ["JAX_COORDINATOR_PORT"] = str(processes.port)  # where JAX's own detection looks
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    timer = threading.Timer(processes.timeout, _give_up, (count, index, address, processes))
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            address,
            processes.count,
            processes.index,
            initialization_timeout=int(processes.timeout) + 60,  # JAX aborts then, without a sentence
            cluster_detection_method=None if found else "deactivate",
        )
        seen = jax.process_count()
    except (RuntimeError, ValueError) as error:
        raise UserError(_refusal(error, count, index, address)) from error
    finally:
        timer.cancel()
    if seen != count:
        raise UserError(
            f"{count} processes were expected, and the devices here are those of {seen}; the hosts must be of one "
            "slice or joined slices"
        )
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib", "flax", "orbax-checkpoint"))
    check_same("installed packages", versions)


def several() -> bool:
    """Whether this run has several processes. Touches no device where it has one."""
    import jax

    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first() -> bool:
    """Whether this is the process that writes what is written once."""
    import jax

    return not several() or jax.process_index() == 0


def on_first(action: Callable[[], T]) -> T | None:
    """What `action` returns in the first process, None in the others, which wait for it; where it raises a `UserError`
    or an `OSError`, all raise it as `UserError`."""
    if not several():
        return action()
    import numpy as np
    from jax.experimental import multihost_utils

    result, refusal = None, b""
    if is_first():
        try:
            result = action()
        except (UserError, OSError) as error:
            code = error.exit_code if isinstance(error, UserError) else FAILED
            refusal = f"{code} {error}".encode()[:2000]
    told = multihost_utils.broadcast_one_to_all(np.frombuffer(refusal.ljust(2000, b"\0"), np.uint8))
    code, _, sentence = bytes(np.asarray(told, np.uint8)).rstrip(b"\0").decode(errors="ignore").partition(" ")
    if code:
        raise (UsageError if int(code) == UsageError.exit_code else UserError)(sentence)
    return result


def all_agree(yes: bool) -> bool:
    """Whether all processes say yes."""
    if not several():
        return yes
    import numpy as np
    from jax.experimental import multihost_utils

    return bool(multihost_utils.process_allgather(np.bool_(yes)).all())


def agree_on_stop(asked: bool, step: int) -> bool:
    """Whether to stop before step `step`: for all processes after the same one, when any of them was `asked` or got
    SIGTERM. To be called by all before every step, from the same first step on. Moves nothing on the devices.

    With several processes SIGTERM belongs to JAX's preemption notice, from `start` on: a handler set after it would
    hide the signal.
    """
    if not several():
        return asked
    from jax.experimental import multihost_utils

    if asked:
        _notify()
    return multihost_utils.reached_preemption_sync_point(step)


@functools.cache
def _notify() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def check_same(what: str, text: str) -> None:
    """Raises `UserError` in every process unless all call this with the same `text`."""
    if not several():
        return
    import numpy as np
    from jax.experimental import multihost_utils

    digest = np.frombuffer(hashlib.sha256(text.encode()).digest()[:8], np.uint32)
    digests_Nx2 = multihost_utils.process_allgather(digest)
    other = [index for index, row in enumerate(digests_Nx2) if (row != digests_Nx2[0]).any()]
    if other:
        raise UserError(
            f"{what} of process {_listed(other)} differ from process 0's; they must be the same on every host (here: "
            f"{text[:300]})"
        )


def check_shared(folder: str | Path) -> None:
    """Raises `UserError` in every process unless all see the same `folder`; it is made where it is missing."""
    if not several():
        return
    import numpy as np
    from jax.experimental import multihost_utils

    folder, reason = place(folder), ""
    name = int(multihost_utils.broadcast_one_to_all(np.uint32(secrets.randbits(32))))
    file = folder / f".seen-{name:08x}"
    if is_first():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text("all processes must see this file\n")
        except OSError as error:
            reason = error.strerror or str(error)
    if multihost_utils.broadcast_one_to_all(np.bool_(bool(reason))):
        raise UserError(f"process 0 cannot write in {folder}" + (f": {reason}" if reason else ""))
    sees_N = multihost_utils.process_allgather(np.bool_(_appears(file)))
    if is_first():
        file.unlink(missing_ok=True)
    if not sees_N.all():
        raise UserError(
            f"{folder} is not the same folder on all {len(sees_N)} hosts (process {_listed(np.flatnonzero(~sees_N))} "
            "has another than process 0); name one they share, gs://... or on a network disk"
        )


def _appears(file: Path) -> bool:
    """A network disk may show a new file a moment later."""
    for _ in range(10):
        if file.exists():
            return True
        time.sleep(0.3)
    return False


def _listed(indices) -> str:
    shown = ", ".join(str(index) for index in indices[:8])
    return shown + (f" and {len(indices) - 8} more" if len(indices) > 8 else "")


def _check(processes: Processes, found: hosts.Found | None) -> None:
    given = {"--coordinator": processes.coordinator, "--processes": processes.count, "--process-id": processes.index}
    missing = [flag for flag, value in given.items() if value is None]
    if processes.count is not None and processes.count < 1:
        raise UsageError(f"--processes={processes.count} is no number of processes")
    if missing and len(missing) < 3 and processes.count != 1 and not found:
        present = " and ".join(flag for flag in given if flag not in missing)
        raise UsageError(
            f"{present} given without {' and '.join(missing)}, and this machine does not say it; name all three"
        )
    if processes.count and processes.index is not None and not 0 <= processes.index < processes.count:
        raise UsageError(f"--process-id={processes.index} is not one of 0 ... {processes.count - 1}")
    if processes.timeout <= 0:
        raise UsageError(f"--start-timeout={processes.timeout:g} leaves no time")


def _address(processes: Processes) -> str | None:
    """HOST:PORT, both of which exist."""
    if processes.coordinator is None:
        return None
    parts = re.fullmatch(r"(\[.*\]|[^:]*)(?::(.*))?", processes.coordinator)
    host, port = parts.groups(default="") if parts else ("", "")
    port = port or str(processes.port or hosts.PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--coordinator={processes.coordinator!r} is not HOST or HOST:PORT")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        raise UserError(
            f"--coordinator={processes.coordinator}: this machine finds no host {host!r} ({error})"
        ) from error
    return f"{host}:{port}"


def _check_port(address: str) -> None:
    port = int(address.rpartition(":")[2])
    if reason := hosts.why_taken(port):
        raise UserError(
            f"port {port} of this machine, on which the processes would meet, is not free ({reason}); name another, "
            "the same for every process, with --coordinator-port or in --coordinator"
        )


def _refusal(error: Exception, count: int, index: int | None, address: str | None) -> str:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if "before any JAX" in str(error):
        return "JAX has used a device before the processes of this run were joined; start them first"
    place = f" at {address}" if address else ""
    return f"process {'?' if index is None else index} of {count} could not join the others{place}: {reason}"


def _give_up(count: int, index: int | None, address: str | None, processes: Processes) -> None:
    """In a thread, as JAX does not return: it waits, then aborts."""
    answers, port = True, address.rpartition(":")[2] if address else hosts.PORT
    if address and index:
        try:
            socket.create_connection((address.rpartition(":")[0].strip("[]"), int(port)), timeout=2).close()
        except OSError:
            answers = False
    here = "this one" if index is None else f"process {index}"
    fault = (
        f"nothing answers at {address}: start process 0 there, and let the firewall pass that port"
        if not answers
        else "the others have not come: run the same line on every host (on a TPU pod with --worker=all, as "
        f"launch/tpu_vm.sh does), and let the firewall pass port {port}"
    )
    sentence = (
        f"error: {count} processes belong to this run, and {here} has waited {processes.timeout:g} s; {fault}. "
        "--start-timeout waits longer\n"
    )
    os.write(2, sentence.encode())
    os._exit(FAILED)


def _leave(error: BaseException) -> None:
    if isinstance(error, (RuntimeError, ValueError)) and not isinstance(error, UserError) and LOST.search(str(error)):
        reason = str(error).strip().splitlines()[0][:200]
        print(
            f"error: another process of this run is gone ({reason}); what was saved is whole: run the same lines again",
            file=sys.stderr,
        )
        code = PREEMPTED
    else:
        code = tell(error)
        if code is None:
            traceback.print_exception(error)
            code = FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
