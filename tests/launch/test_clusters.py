"""The launchers for clusters against sbatch, xpk and sky that only write down their calls; all are clean bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.launch.stubs import ROOT, Stubs

SCRIPTS = ["launch/local.sh", "launch/tpu_vm.sh", "launch/gke_xpk.sh", "launch/slurm.sbatch"]
XPK = ("--cluster", "c", "--workload", "w")


@pytest.fixture
def stubs(tmp_path):
    return Stubs(tmp_path)


def sky():
    return yaml.safe_load((ROOT / "launch" / "skypilot.yaml").read_text())


def option(call, name):
    return call[call.index(name) + 1]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_launcher_explains_itself_and_wants_to_know_what_to_do(name):
    words = ["bash", str(ROOT / name)]
    told = subprocess.run([*words, "--help"], capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.startswith("usage:") and "--dry-run" in told.stdout
    bare = subprocess.run(words, capture_output=True, text=True)
    assert bare.returncode == 2 and "usage:" in bare.stderr


def test_shellcheck_finds_nothing(tmp_path):
    shellcheck = Path(sys.executable).with_name("shellcheck")
    found = str(shellcheck) if shellcheck.exists() else shutil.which("shellcheck")
    if not found:
        pytest.skip("shellcheck is not installed")
    for part in ("setup", "run"):
        (tmp_path / part).write_text("#!/bin/bash\n" + sky()[part])
    files = [*(str(ROOT / name) for name in SCRIPTS), str(tmp_path / "setup"), str(tmp_path / "run")]
    done = subprocess.run([found, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# ---- xpk ------------------------------------------------------------------------------------------------------------


def xpk(stubs, *words):
    stubs.add("xpk", 'exit "${XPK_CODE:-0}"')
    return stubs.run(str(ROOT / "launch" / "gke_xpk.sh"), *words)


def test_a_workload_runs_the_command_word_by_word_and_again_after_75(stubs):
    command = ["pretrain", "--config.optimizer.warmup=8 %", "it's"]
    done = xpk(stubs, "run", *XPK, "--type", "v5litepod-16", "--slices=2", "--zone", "z", "--project", "p", *command)
    assert done.returncode == 0, done.stderr
    (call,) = stubs.calls
    assert call[:3] == ["xpk", "workload", "create"] and option(call, "--restart-on-exit-codes") == "75"
    assert (option(call, "--tpu-type"), option(call, "--num-slices")) == ("v5litepod-16", "2")
    assert (option(call, "--zone"), option(call, "--project")) == ("z", "p")
    assert int(option(call, "--max-restarts")) > 0 and option(call, "--script-dir") == str(ROOT)
    for name in ("pip", "python"):
        stubs.add(name)
    assert stubs.run("bash", "-c", option(call, "--command")).returncode == 0
    assert stubs.calls[1][:2] == ["pip", "install"]
    assert stubs.calls[2] == ["python", "-m", "posenc_jax", *command]


def test_an_image_that_is_named_is_taken_as_it_is(stubs):
    xpk(stubs, "run", *XPK, "--type", "v6e-16", "--image", "gcr.io/p/i", "pretrain")
    (call,) = stubs.calls
    assert option(call, "--docker-image") == "gcr.io/p/i" and "--script-dir" not in call and "pip" not in call[-1]


def test_a_dry_run_of_xpk_is_the_call(stubs):
    words = ["run", *XPK, "--type", "v6e-16"]
    plan = xpk(stubs, *words, "--dry-run", "pretrain", "a b")
    assert plan.returncode == 0 and stubs.calls == []
    assert xpk(stubs, "--dry-run", *words, "pretrain", "a b").stdout == plan.stdout
    stubs.run("bash", "-c", plan.stdout)
    xpk(stubs, *words, "pretrain", "a b")
    assert stubs.calls[0] == stubs.calls[1]


def test_delete_and_wrong_use_of_xpk(stubs):
    assert xpk(stubs, "delete", *XPK).returncode == 0
    assert stubs.calls == [["xpk", "workload", "delete", *XPK]]
    for words, said in [
        (["run", *XPK, "pretrain"], "wants --type"),
        (["run", *XPK, "--type", "v6e-8"], "wants a command"),
        (["run", "--cluster", "c", "pretrain"], "--workload is missing"),
        (["run", "--cluster"], "--cluster has no value"),
        (["delete", *XPK, "--force"], "no option '--force'"),
    ]:
        done = xpk(stubs, *words)
        assert done.returncode == 2 and said in done.stderr
    assert len(stubs.calls) == 1


def test_an_error_of_xpk_is_passed_on(stubs, monkeypatch):
    monkeypatch.setenv("XPK_CODE", "7")
    assert xpk(stubs, "run", *XPK, "--type", "v6e-8", "pretrain").returncode == 7


# ---- Slurm ----------------------------------------------------------------------------------------------------------


def slurm(stubs, *words, **environment):
    folder = stubs.folder.parent
    (folder / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    (folder / ".venv" / "bin" / "python").touch(mode=0o755)
    stubs.add("srun", 'exit "${SRUN_CODE:-0}"')
    stubs.add("scontrol")
    return stubs.run("bash", str(ROOT / "launch" / "slurm.sbatch"), *words, cwd=folder, **environment)


@pytest.mark.parametrize(
    ("code", "restarts", "requeued"),
    [
        ("0", "0", False),
        ("75", "0", True),
        ("75", "99", True),
        ("134", "0", True),
        ("134", "10", False),
        ("1", "0", False),
    ],
)
def test_a_job_is_requeued_when_it_was_interrupted(stubs, code, restarts, requeued):
    done = slurm(stubs, "pretrain", "a b", SLURM_JOB_ID="42", SRUN_CODE=code, SLURM_RESTART_COUNT=restarts)
    assert stubs.calls[0][-5:] == [".venv/bin/python", "-m", "posenc_jax", "pretrain", "a b"]
    assert (stubs.calls[1:] == [["scontrol", "requeue", "42"]]) == requeued
    assert done.returncode == (0 if requeued else int(code))


def test_the_job_is_warned_before_its_time_is_over():
    text = (ROOT / "launch" / "slurm.sbatch").read_text()
    settings = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert {"#SBATCH --requeue", "#SBATCH --signal=TERM@180", "#SBATCH --open-mode=append"} <= set(settings)
    before = text[: text.index("set -euo")].splitlines()
    assert all(line.startswith("#") for line in before)  # sbatch stops reading settings at the first command


def test_a_dry_run_of_slurm_names_the_submission_and_the_step(stubs):
    plan = slurm(stubs, "--dry-run", "--nodes", "2", "--", "pretrain", "a b")
    assert plan.returncode == 0 and stubs.calls == []
    stubs.add("sbatch")
    stubs.run("bash", "-c", plan.stdout, cwd=stubs.folder.parent)
    assert stubs.calls[0] == ["sbatch", "--nodes", "2", "launch/slurm.sbatch", "pretrain", "a b"]
    assert stubs.calls[1][0] == "srun" and stubs.calls[1][-2:] == ["pretrain", "a b"]


def test_outside_a_job_and_without_an_environment_it_says_so(stubs):
    assert "not in a job" in slurm(stubs, "pretrain").stderr
    os.remove(stubs.folder.parent / ".venv" / "bin" / "python")
    done = stubs.run("bash", str(ROOT / "launch/slurm.sbatch"), "pretrain", cwd=stubs.folder.parent, SLURM_JOB_ID="1")
    assert done.returncode == 1 and "no .venv" in done.stderr


# ---- SkyPilot -------------------------------------------------------------------------------------------------------


def test_sky_is_told_that_75_means_again():
    assert sky()["resources"]["job_recovery"]["recover_on_exit_codes"] == [75] and sky()["resources"]["use_spot"]


@pytest.mark.parametrize("gpus", [True, False])
def test_sky_runs_the_command_and_tells_machines_with_gpus_who_they_are(stubs, tmp_path, gpus):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(
        '#!/bin/sh\nprintf "<%s>" "$@"\necho " $JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID"\n'
    )
    python.chmod(0o755)
    if gpus:
        stubs.add("nvidia-smi")
    machine = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
    done = stubs.run("bash", "-c", sky()["run"], cwd=tmp_path, COMMAND="pretrain --x 'a b'", **machine)
    who = " 10.0.0.1:8482 2 1" if gpus else ""
    assert done.stdout.strip() == "<-m><posenc_jax><pretrain><--x><a b>" + who
    empty = stubs.run("bash", "-c", sky()["run"], cwd=tmp_path, COMMAND="", **machine)
    assert empty.returncode == 2 and "COMMAND" in empty.stderr
