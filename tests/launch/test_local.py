"""Makefile, CI entry and local launcher: what they would do, without installing anything."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FAKE_PYTHON = """#!/bin/sh
echo "ran $*"
n=$(cat count 2>/dev/null || echo 0)
echo $((n + 1)) > count
[ "$n" -lt "$PREEMPTIONS" ] && exit 75
exit 3
"""


FAKE_PROCESS = """#!/usr/bin/env bash
# One of several: says its line, then does what DO_<its id> says.
id="${@: -1}"
echo "$id: $*"
do="DO_$id"
eval "${!do:-exit 0}"
"""


def run(*words, cwd=ROOT, **environment):
    # The tests may themselves run under make, whose settings a make started here would inherit.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "PYTEST_ARGS")}
    env.update(environment)
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=env, timeout=60)


@pytest.fixture
def repository(tmp_path):
    """The scripts alone, with an environment whose Python only counts."""
    for name in ("Makefile", "launch/local.sh", ".ci/run", "requirements.txt", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def installed(repository):
    (repository / ".venv" / "bin").mkdir(parents=True)
    python = repository / ".venv" / "bin" / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    for stamp in (".made", ".runtime", ".notebooks", ".test"):
        (repository / ".venv" / stamp).touch()
    return repository


def test_make_alone_explains_itself():
    done = run("make")
    assert done.returncode == 0 and "make quickstart" in done.stdout and "make test" in done.stdout


@pytest.mark.parametrize("target", ["quickstart", "test"])
def test_a_target_makes_its_environment_once(repository, target):
    first = run("make", "-n", target, "PYTHON=python9", cwd=repository).stdout
    assert "python9 -m venv .venv" in first and "-r requirements.txt" in first and "-e ." in first
    assert ("'.[test]'" in first) == (target == "test")


def test_what_is_installed_is_not_installed_again_until_the_requirements_change(installed):
    again = run("make", "-n", "test", "PYTEST_ARGS=-k packing", cwd=installed).stdout
    assert "venv" not in again.replace(".venv/bin/python", "") and "pip" not in again and again.endswith("-k packing\n")
    os.utime(installed / "requirements.txt", (2**31, 2**31))
    assert "pip install" in run("make", "-n", "quickstart", cwd=installed).stdout


def test_an_old_python_is_refused_in_one_sentence(repository):
    (repository / "old").write_text("#!/bin/sh\nexit 1\n")
    (repository / "old").chmod(0o755)
    done = run("make", "test", "PYTHON=./old", cwd=repository)
    assert done.returncode != 0 and "takes Python 3.11 or newer, and ./old is not" in done.stdout
    assert not (repository / ".venv").exists()


@pytest.mark.parametrize(
    ("body", "last", "code"),
    [
        ("echo '3 passed in 1.20s'", "3 passed in 1.20s", 0),
        (
            "echo '1 failed, 2 passed in 61.20s (0:01:01)'; echo noise >&2; exit 1",
            "1 failed, 2 passed in 61.20s (0:01:01)",
            2,
        ),
        ("exit 1", "make test ended with code 2 before pytest said anything", 2),
    ],
)
def test_ci_ends_with_the_line_of_pytest_and_the_code_of_make(repository, body, last, code):
    (repository / "Makefile").write_text(f"test:\n\t@{body}\n")
    done = run(".ci/run", cwd=repository)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, last)


def test_the_launcher_explains_itself_and_wants_a_command():
    assert "RESTART=1" in run("launch/local.sh", "--help").stdout
    assert run("launch/local.sh").returncode == 2


def test_an_option_that_is_none_is_refused_before_anything_is_installed(repository):
    done = run("launch/local.sh", "--proceses", "2", "pretrain", cwd=repository)
    assert done.returncode == 2 and "no option '--proceses'" in done.stderr
    assert not (repository / ".venv").exists()


def test_a_dry_run_does_nothing(repository):
    done = run("launch/local.sh", "--dry-run", "pretrain", "--workdir", "a b", cwd=repository, RESTART="1")
    assert (
        done.returncode == 0 and "'make'" in done.stdout and "'--workdir' 'a b'" in done.stdout and "75" in done.stdout
    )
    assert not (repository / ".venv").exists()


@pytest.mark.parametrize(("restart", "runs", "code"), [("0", 1, 75), ("1", 3, 3)])
def test_only_a_preempted_command_is_run_again_and_only_when_asked(installed, restart, runs, code):
    done = run("launch/local.sh", "doctor", cwd=installed, RESTART=restart, PREEMPTIONS="2")
    assert done.stdout.splitlines() == ["ran -m posenc_jax doctor"] * runs and done.returncode == code


def test_sigterm_reaches_the_command_and_is_the_end_of_it(installed):
    python = installed / ".venv" / "bin" / "python"
    python.write_text("#!/bin/sh\ntrap 'echo saved; exit 75' TERM\necho started\nwhile :; do sleep 0.05; done\n")
    env = {**os.environ, "RESTART": "1"}
    with subprocess.Popen(
        ["launch/local.sh", "pretrain"], cwd=installed, env=env, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout.readline() == "started\n"
        launcher.send_signal(signal.SIGTERM)
        assert launcher.communicate(timeout=30)[0] == "saved\n" and launcher.returncode == 75


# ---- several processes ----------------------------------------------------------------------------------------------


@pytest.fixture
def several(installed):
    (installed / ".venv" / "bin" / "python").write_text(FAKE_PROCESS)
    return installed


def run_two(repository, **environment):
    environment = {"GRACE": "3", "PORT": "7777", **environment}
    return run("launch/local.sh", "--processes", "2", "pretrain", "a b", cwd=repository, **environment)


def test_processes_of_one_run_are_told_where_they_meet_and_who_they_are(several):
    done = run_two(several)
    lines = [
        f"{i}: -m posenc_jax pretrain a b --coordinator 127.0.0.1:7777 --processes 2 --process-id {i}" for i in "01"
    ]
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == lines


def test_a_dry_run_of_several_is_a_shell_script(several):
    plan = run("launch/local.sh", "--dry-run", "--processes=2", "pretrain", "a b", cwd=several, PORT="7777").stdout
    assert run("bash", "-n", "-c", plan).returncode == 0
    ran = run("bash", "-c", plan, cwd=several).stdout
    assert sorted(line[:2] for line in ran.splitlines()) == ["0:", "1:"]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("exit 0", "exit 3", 3),
        ("exit 75", "exit 75", 75),
        ("exit 75", "exit 1", 1),  # the one that lost the other is not the one at fault
        ("exit 134", "exit 1", 1),
        ("sleep 0.3; exit 134", "exit 75", 75),
        ("exit 134", "sleep 0.3; exit 75", 75),
        ("exit 75", "kill -9 $$", 137),
    ],
)
def test_the_code_is_that_of_the_process_at_fault(several, first, second, code):
    assert run_two(several, DO_0=first, DO_1=second).returncode == code


def test_when_one_fails_the_others_are_ended_even_those_that_will_not(several):
    began = time.monotonic()
    done = run_two(several, GRACE="1", DO_0="trap '' TERM; while :; do sleep 0.05; done", DO_1="exit 1")
    assert done.returncode == 1 and time.monotonic() - began < 15


@pytest.mark.parametrize(("code", "runs"), [(75, 3), (134, 3), (1, 1)])
def test_a_run_is_started_again_when_it_was_interrupted(several, code, runs):
    once = f"echo x >>count; [ $(wc -l <count) -gt 2 ] && exit 0; exit {code}"
    assert run_two(several, RESTART="1", DO_0="exit 0", DO_1=once).returncode == (code if code == 1 else 0)
    assert len((several / "count").read_text().splitlines()) == runs


def test_processes_that_keep_losing_each_other_are_not_started_for_ever(several):
    done = run_two(several, RESTART="1", DO_0="exit 134", DO_1="exit 134")
    assert done.returncode == 134 and done.stderr.count("running the same line again") == 10


def test_sigterm_reaches_all_processes(several):
    do = "trap 'echo saved; exit 75' TERM; echo started; while :; do sleep 0.05; done"
    env = {**os.environ, "RESTART": "1", "DO_0": do, "DO_1": do}
    words = ["launch/local.sh", "--processes", "2", "pretrain"]
    with subprocess.Popen(words, cwd=several, env=env, stdout=subprocess.PIPE, text=True) as launcher:
        started = 0
        while started < 2:
            started += launcher.stdout.readline() == "started\n"
        launcher.send_signal(signal.SIGTERM)
        assert launcher.communicate(timeout=30)[0] == "saved\nsaved\n" and launcher.returncode == 75


@pytest.mark.parametrize("count", ["0", "two", "", "-1"])
def test_no_number_of_processes_is_refused(several, count):
    done = run("launch/local.sh", "--processes", count, "pretrain", cwd=several)
    assert done.returncode == 2 and "--processes" in done.stderr


def test_a_command_of_one_process_is_not_started_in_several(several):
    done = run("launch/local.sh", "--processes", "2", "prepare", "--out", "rows", cwd=several)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == "error: --processes 2 is for pretrain; 'prepare' runs in one process: leave it out\n"


def test_the_exit_code_is_left_in_a_file_where_asked(several):
    run("launch/local.sh", "pretrain", "0", cwd=several, CODE_FILE="code", DO_0="exit 3")
    assert (several / "code").read_text() == "3\n"
