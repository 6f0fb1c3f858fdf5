"""`doctor`: a line a finding, a mend for what is missing, 1 when something is."""

import os

import pytest
from packaging.requirements import Requirement

from posenc_jax.commands import doctor


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(doctor, "_matmul_gflops", lambda jax: 12.0)


def test_here_all_is_well_and_the_devices_are_named(quick, capsys, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", "/some/where")
    assert doctor.main([]) == 0
    printed = capsys.readouterr().out
    assert "8 x cpu (cpu)" in printed and "0 of 1" in printed and "12 GFLOP/s" in printed and "/some/where" in printed
    assert "missing" not in printed and printed.endswith("all that is needed is here\n")
    for name in ("python", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy", "sentencepiece"):
        assert f" {name} " in printed


def test_every_requirement_is_asked_for():
    names = {Requirement(line).name for line in doctor.requirements()}
    assert {"jax", "flax", "grain", "sentencepiece", "rich"} <= names


@pytest.mark.parametrize(
    ("line", "ok", "detail"),
    [
        ("rich>=1", True, ""),
        ("rich>=1000", False, "but >=1000 is wanted"),
        ("no-such-package-anywhere>=2", False, "not installed"),
    ],
)
def test_a_version_out_of_range_is_missing_and_the_mend_installs_it(line, ok, detail):
    finding = doctor.requirement_finding(Requirement(line))
    assert finding.ok is ok and detail in finding.detail and finding.mend == ("" if ok else f"pip install '{line}'")


def test_what_is_missing_ends_with_1_and_says_the_mend(quick, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "requirements", lambda: ["no-such-package-anywhere>=2"])
    assert doctor.main([]) == 1
    printed = capsys.readouterr().out
    assert "missing  no-such-package-anywhere" in printed and "pip install 'no-such-package-anywhere>=2'" in printed


def test_a_read_only_folder_is_told(monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert [(finding.ok, finding.mend) for finding in doctor._machine() if finding.what == "this folder"] == [
        (False, "name --out elsewhere")
    ]


def test_a_broken_backend_is_a_finding_not_a_traceback(monkeypatch):
    import jax

    def fail():
        raise RuntimeError("no driver\nat all")

    monkeypatch.setattr(jax, "devices", fail)
    (finding,) = doctor._devices()
    assert finding.ok is False and "no driver;" in finding.detail and "JAX_PLATFORMS=cpu" in finding.mend


def test_a_product_is_checked_not_only_timed(monkeypatch):
    import jax

    monkeypatch.setattr(jax, "jit", lambda function: lambda x: x)
    assert doctor._matmul_gflops(jax) is None


def test_it_says_what_a_run_in_several_processes_would_go_by(monkeypatch):
    import socket

    from posenc_jax.parallel import hosts

    monkeypatch.setattr(hosts, "of_machine", lambda: hosts.Found("Slurm", 4, 3))
    monkeypatch.setenv("JAX_NUM_PROCESSES", "4")
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("JAX_COORDINATOR_PORT", str(port))
        printed = "\n".join(finding.line() for finding in doctor._processes())
    assert "Slurm says 4, this is 3" in printed and "JAX_NUM_PROCESSES=4" in printed
    assert f"{port} is taken" in printed and "--coordinator-port" in printed
    assert "is free" in "\n".join(finding.line() for finding in doctor._processes())
