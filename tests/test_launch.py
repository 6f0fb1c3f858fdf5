"""Makefile, CI entry and local launcher: what they would do, without installing anything."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FAKE_PYTHON = """#!/bin/sh
echo "ran $*"
n=$(cat count 2>/dev/null || echo 0)
echo $((n + 1)) > count
[ "$n" -lt "$PREEMPTIONS" ] && exit 75
exit 3
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
    for stamp in (".made", ".runtime", ".test"):
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
