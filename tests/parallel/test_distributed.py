"""Who belongs to a run, from flags, variables and machines; and what is said where that cannot be."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from posenc_jax.errors import UsageError, UserError
from posenc_jax.parallel import distributed, hosts
from posenc_jax.parallel.distributed import Processes

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_PORT")
CLUSTERS = ("SLURM_", "OMPI_", "TPU_", "MEGASCALE_")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    """On no cluster, and JAX is never started for several processes in this one."""
    for name in list(os.environ):
        if name in VARIABLES or name.startswith(CLUSTERS):
            monkeypatch.delenv(name)
    import jax

    monkeypatch.setattr(jax.distributed, "initialize", lambda *words, **named: pytest.fail("JAX was started"))


def read(*words):
    parser = argparse.ArgumentParser()
    distributed.add_arguments(parser)
    return distributed.from_arguments(parser.parse_args(words))


def test_flags_come_before_variables(monkeypatch):
    for name, value in zip(VARIABLES, ("there:1", "4", "3", "99"), strict=True):
        monkeypatch.setenv(name, value)
    assert read() == Processes("there:1", 4, 3, 99)
    flags = ("--coordinator", "here", "--processes=2", "--process-id=0", "--coordinator-port=7", "--start-timeout=5")
    assert read(*flags) == Processes("here", 2, 0, 7, 5)


def test_a_variable_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(UsageError, match="JAX_NUM_PROCESSES='two'"):
        read()


@pytest.mark.parametrize("processes", [Processes(), Processes(count=1)])
def test_one_process_alone_starts_nothing(processes):
    with distributed.together(processes):
        assert not distributed.several() and distributed.is_first()
        assert distributed.agree_on_stop(True, 3) and not distributed.agree_on_stop(False, 3)
        distributed.check_same("anything", "x")
        distributed.check_shared("/nowhere/at/all")


def test_an_error_in_one_process_alone_goes_its_way():
    with pytest.raises(UserError, match="mine"), distributed.together(Processes()):
        raise UserError("mine")


@pytest.mark.parametrize(
    ("processes", "error", "said"),
    [
        (Processes(count=2), UsageError, "--processes given without --coordinator and --process-id"),
        (Processes("here"), UsageError, "--coordinator given without --processes and --process-id"),
        (Processes("here", 2), UsageError, "without --process-id"),
        (Processes("here", 2, 2), UsageError, "--process-id=2 is not one of 0 ... 1"),
        (Processes("here", 0, 0), UsageError, "--processes=0"),
        (Processes("here", 2, 0, timeout=0), UsageError, "--start-timeout=0"),
        (Processes("a:b:c", 2, 1), UsageError, "not HOST or HOST:PORT"),
        (Processes("127.0.0.1:0", 2, 1), UsageError, "not HOST or HOST:PORT"),
        (Processes(":80", 2, 1), UsageError, "not HOST or HOST:PORT"),
        (Processes("127.0.0.1", 2, 1, 99999), UsageError, "not HOST or HOST:PORT"),
        (Processes("no such host", 2, 1), UserError, "finds no host 'no such host'"),
    ],
)
def test_what_cannot_be_is_refused_before_jax_is_started(processes, error, said):
    with pytest.raises(error, match=said):
        distributed.start(processes)


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} of this machine.*--coordinator-port"):
            distributed.start(Processes("127.0.0.1", 2, 0, port))


# ---- machines -------------------------------------------------------------------------------------------------------

SLURM_STEP = dict(zip(hosts.SLURM, ("1", "node[1-2]", "2", "1", "0"), strict=True))


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        (SLURM_STEP, hosts.Found("Slurm", 2, 1)),
        ({name: value for name, value in SLURM_STEP.items() if name != "SLURM_STEP_NODELIST"}, None),  # no srun
        (
            {"OMPI_MCA_orte_hnp_uri": "1;tcp://1.2.3.4:5", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"},
            hosts.Found("Open MPI", 4, 3),
        ),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, None),  # no TPU here
    ],
)
def test_what_a_machine_says(monkeypatch, variables, found):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hosts.of_machine() == found


@pytest.mark.parametrize(
    ("variables", "attributes", "found"),
    [
        ({"TPU_WORKER_HOSTNAMES": "a"}, {}, hosts.Found("GKE", 1)),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "MEGASCALE_NUM_SLICES": "3"}, {}, hosts.Found("GKE", 6)),
        ({"TPU_PROCESS_ADDRESSES": "a:1,b:1", "TPU_WORKER_HOSTNAMES": "a"}, {}, hosts.Found("GKE", 2)),
        ({}, {"worker-network-endpoints": "u:0:10.0.0.1,u:1:10.0.0.2"}, hosts.Found("Cloud TPU", 2)),
        (
            {},
            {"worker-network-endpoints": "a,b", "tpu-env": "ZONE: 'z'\nMEGASCALE_NUM_SLICES: '2'\n"},
            hosts.Found("Cloud TPU", 4),
        ),
        ({"TPU_SKIP_MDS_QUERY": "1"}, {"worker-network-endpoints": "a,b"}, None),
        ({}, {}, None),
    ],
)
def test_what_a_tpu_says(monkeypatch, variables, attributes, found):
    monkeypatch.setattr(hosts, "has_tpu", lambda: True)
    monkeypatch.setattr(hosts, "_attribute", attributes.get)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hosts.of_machine() == found


def test_a_machine_of_several_hosts_has_jax_find_them(monkeypatch):
    import jax

    calls = []
    monkeypatch.setattr(hosts, "of_machine", lambda: hosts.Found("Cloud TPU", 4))
    monkeypatch.setattr(jax.distributed, "initialize", lambda *words, **named: calls.append((words, named)))
    with pytest.raises(UserError, match="4 processes were expected, and the devices here are those of 1"):
        distributed.start(Processes())
    ((words, named),) = calls
    assert words == (None, None, None) and named["cluster_detection_method"] is None


# ---- real processes -------------------------------------------------------------------------------------------------


def python(code, *words):
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *words], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def free_port():
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


START = """
import os, sys, time
from posenc_jax.errors import UserError
from posenc_jax.parallel import distributed
address, index, timeout, shared = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
"""


@pytest.mark.parametrize(("index", "said"), [(0, "--worker=all"), (1, "nothing answers at 127.0.0.1:")])
def test_a_lone_process_of_two_says_so_and_ends_with_1(index, said):
    code = START + "distributed.start(distributed.Processes(address, 2, index, timeout=timeout))"
    process = python(code, f"127.0.0.1:{free_port()}", str(index), "3", "")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and errors.count("error: ") == 1, errors
    assert f"process {index} has waited 3 s" in errors and said in errors and "Traceback" not in errors


BODY = """
with distributed.together(distributed.Processes(address, 2, index, timeout=timeout)):
    import jax
    distributed.check_same("what is the same", "x")
    distributed.check_shared(shared)
    try:
        distributed.check_shared(shared + str(index))
    except UserError as error:
        print(error, flush=True)
    try:
        distributed.check_same("words", f"word {index}")
    except UserError as error:
        print(error, flush=True)
    for step in range(2000):
        if distributed.agree_on_stop(index == 1 and step == 5, step):
            print("stopped", step, flush=True)
            break
        time.sleep(0.005)
    if index == 1:
        raise UserError("a mistake")
    distributed.check_same("never answered", "x")
"""


def test_two_processes_compare_stop_and_end_together(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    processes = [python(START + BODY, address, str(i), "60", str(tmp_path / "shared")) for i in range(2)]
    (out0, errors0), (out1, errors1) = (process.communicate(timeout=120) for process in processes)
    assert out0.splitlines()[-1].startswith("stopped ") and out0.splitlines()[-1] == out1.splitlines()[-1]
    for i, out in enumerate((out0, out1)):
        assert f"shared{i} is not the same folder on all 2 hosts (process 1 has another" in out
        assert "words of process 1 differ from process 0's" in out and f"here: word {i}" in out
    assert processes[1].returncode == 1 and "error: a mistake" in errors1 and "Traceback" not in errors1
    assert processes[0].returncode in (75, -signal.SIGABRT), errors0
    assert not list((tmp_path / "shared").iterdir())
