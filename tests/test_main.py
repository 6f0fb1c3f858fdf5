"""The front door: quick, quiet, and every mistake one sentence with its exit code."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from posenc_jax.__main__ import COMMANDS, _choose_platform, _take_large_pages, main
from posenc_jax.errors import UsageError, UserError

ROOT = Path(__file__).parents[1]

EVERY_HELP = """
import contextlib, io, sys
from posenc_jax.__main__ import COMMANDS, _choose_platform, main
with contextlib.redirect_stdout(io.StringIO()) as printed:
    main(["--help"])
    for name in COMMANDS:
        with contextlib.suppress(SystemExit):
            main([name, "--help"])
assert all(f"posenc_jax {name}" in printed.getvalue() for name in COMMANDS)
print([name for name in ("jax", "flax", "numpy", "scipy", "sklearn", "matplotlib", "rich") if name in sys.modules])
"""

EVERY_MODULE = """
import importlib, pkgutil, sys
sys.argv = ["program", "--an-unknown-flag"]
import posenc_jax
names = [module.name for module in pkgutil.walk_packages(posenc_jax.__path__, "posenc_jax.")]
for name in names:
    importlib.import_module(name)
from jax._src import xla_bridge
assert len(names) > 50
print(xla_bridge.backends_are_initialized(), "tensorflow" in sys.modules)
"""


def python(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT, timeout=300)


def test_help_of_any_command_loads_nothing_heavy():
    done = python("-c", EVERY_HELP)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_importing_every_module_starts_no_backend_reads_no_flag_and_loads_no_tensorflow():
    done = python("-c", EVERY_MODULE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False False"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    printed = capsys.readouterr().out
    assert caught.value.code == 0 and printed.startswith(f"usage: python -m posenc_jax {name}")


def test_without_a_command_it_lists_them_and_ends_with_2():
    done = python("-m", "posenc_jax")
    assert done.returncode == 2 and done.stdout.startswith("usage: python -m posenc_jax COMMAND")
    assert all(name in done.stdout for name in COMMANDS)


def test_an_unknown_command_is_wrong_use(capsys):
    assert main(["pretrian"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "no command 'pretrian'" in printed.err and "pretrain" in printed.err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (UserError("the rows are gone; prepare them again"), 1, "error: the rows are gone; prepare them again\n"),
        (UsageError("width=5 is odd"), 2, "error: width=5 is odd\n"),
        (
            OSError(28, "No space left on device", "out/x"),
            1,
            "error: No space left on device (out/x); make room and run the same line again\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_a_mistake_is_one_sentence_and_an_exit_code(error, code, sentence, monkeypatch, capsys):
    def fail(argv):
        raise error

    monkeypatch.setitem(sys.modules, "posenc_jax.commands.report", types.SimpleNamespace(main=fail))
    assert main(["report", "run"]) == code
    assert capsys.readouterr().err == sentence


def test_a_defect_of_ours_is_a_traceback(monkeypatch):
    def fail(argv):
        raise KeyError("ours")

    monkeypatch.setitem(sys.modules, "posenc_jax.commands.report", types.SimpleNamespace(main=fail))
    with pytest.raises(KeyError):
        main(["report", "run"])


def test_a_mistake_at_the_command_line_shows_no_traceback():
    done = python("-m", "posenc_jax", "report", "nowhere/at/all")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: there is no folder nowhere/at/all; name workdirs of `pretrain`\n"


@pytest.mark.parametrize(("devices", "kept"), [(["/dev/accel0"], True), ([], False)])
def test_compiled_programs_are_kept_where_there_is_an_accelerator_and_the_user_did_not_choose(
    monkeypatch, devices, kept
):
    monkeypatch.setattr(Path, "glob", lambda self, pattern: map(Path, devices))
    environment = {"XDG_CACHE_HOME": "/caches"}
    monkeypatch.setattr(os, "environ", environment)
    _choose_platform()
    assert environment.get("JAX_COMPILATION_CACHE_DIR") == ("/caches/posenc_jax" if kept else None)
    assert environment.get("JAX_PLATFORMS") == (None if kept else "cpu")
    environment["JAX_COMPILATION_CACHE_DIR"] = "/mine"
    _choose_platform()
    assert environment["JAX_COMPILATION_CACHE_DIR"] == "/mine"


@pytest.mark.parametrize(
    ("policy", "environment", "again"),
    [
        ("always [madvise] never", {"JAX_PLATFORMS": "cpu"}, True),
        ("[always] madvise never", {"JAX_PLATFORMS": "cpu"}, False),
        ("always [madvise] never", {"JAX_PLATFORMS": "cpu", "GLIBC_TUNABLES": "glibc.malloc.check=1"}, False),
        ("always [madvise] never", {"JAX_PLATFORMS": "tpu"}, False),
        (None, {"JAX_PLATFORMS": "cpu"}, False),
    ],
)
def test_on_a_processor_the_program_starts_anew_with_large_pages_once(
    policy, environment, again, tmp_path, monkeypatch
):
    started = []
    monkeypatch.setattr(os, "execv", lambda path, words: started.append((path, words, os.environ["GLIBC_TUNABLES"])))
    for name in ("JAX_PLATFORMS", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "enabled"
    if policy:
        file.write_text(policy)
    for _ in range(2):
        _take_large_pages(file)
    line = (sys.executable, [sys.executable, *sys.orig_argv[1:]], "glibc.malloc.hugetlb=1")
    assert started == [line] * again


def test_starting_anew_keeps_the_words_the_process_and_the_exit_code(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import os, sys; print('start', os.getpid(), file=sys.stderr)")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "JAX_PLATFORMS": "cpu"}
    environment.pop("GLIBC_TUNABLES", None)
    words = [sys.executable, "-m", "posenc_jax", "pretrain", "--config", "FILE"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=300, env=environment)
    starts = [line for line in done.stderr.splitlines() if line.startswith("start")]
    assert done.returncode == 2 and "required: --workdir" in done.stderr and len(set(starts)) == 1
