"""launch/tpu_vm.sh against a gcloud that only writes down its calls, and workers that are this machine's shell."""

import os
import shlex
import shutil
import signal
import subprocess
import time

import pytest

from tests.launch.stubs import ROOT, Stubs

SLICE = ("--name", "bert", "--zone", "us-west4-a")
TYPE = ("--type", "v5litepod-8")

# `state` holds what describe says, a line a call, the last one for ever; `codes` the same for what workers answer.
GCLOUD = """
next() { head -n 1 "$1" 2>/dev/null; if [ "$(wc -l <"$1")" -gt 1 ]; then sed -i 1d "$1"; fi; }
case "$*" in
  *queued-resources\\ describe*) [ -s state ] && next state ;;
  *echo\\ code=*) next codes ;;
  *queued-resources\\ create*) [ ! -e no_create ] || { echo 'ERROR: quota' >&2; exit 1; } ;;
esac
"""


@pytest.fixture
def stubs(tmp_path):
    stubs = Stubs(tmp_path)
    stubs.add("gcloud", GCLOUD)
    return stubs


def script(stubs, *words, cwd=None, **environment):
    return stubs.run(str(ROOT / "launch" / "tpu_vm.sh"), *words, cwd=cwd or stubs.folder.parent, **environment)


def answers(stubs, name, *lines):
    (stubs.folder.parent / name).write_text("".join(f"{line}\n" for line in lines))


def option(call, name):
    return call[call.index(name) + 1]


def test_create_asks_for_a_queued_resource_and_waits_for_it(stubs):
    answers(stubs, "state", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE")
    done = script(stubs, "create", *SLICE, *TYPE, "--spot", "--project=p")
    assert done.returncode == 0, done.stderr
    first = stubs.calls[0]
    assert first[:6] == ["gcloud", "compute", "tpus", "queued-resources", "create", "bert"]
    assert option(first, "--accelerator-type") == "v5litepod-8" and "--spot" in first
    assert option(first, "--node-id") == "bert" and option(first, "--runtime-version") == "v2-alpha-tpuv5-lite"
    assert option(first, "--zone") == "us-west4-a" and option(first, "--project") == "p"
    assert len(stubs.calls) >= 4


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("v6e-8", "v2-alpha-tpuv6e"),
        ("v5p-8", "v2-alpha-tpuv5"),
        ("v4-8", "tpu-ubuntu2204-base"),
        ("v5litepod-8", "own"),
    ],
)
def test_the_image_follows_from_the_type_unless_it_is_named(stubs, kind, version):
    answers(stubs, "state", "ACTIVE")
    named = ("--version", "own") if version == "own" else ()
    assert script(stubs, "create", *SLICE, "--type", kind, *named).returncode == 0
    assert option(stubs.calls[0], "--runtime-version") == version and "--spot" not in stubs.calls[0]


@pytest.mark.parametrize("state", ["FAILED", "SUSPENDED"])
def test_a_slice_that_does_not_come_up_is_an_error(stubs, state):
    answers(stubs, "state", state)
    done = script(stubs, "create", *SLICE, *TYPE)
    assert done.returncode == 1 and f"did not come up: {state}" in done.stderr
    assert option(stubs.calls[-1], "--format") == "yaml(state)"  # and why


def test_sync_copies_the_folder_without_what_is_made_here(stubs):
    done = script(stubs, "sync", *SLICE, "--setup", "echo 'two  words'")
    assert done.returncode == 0, done.stderr
    copy, install = stubs.calls
    assert stubs.verbs()[0].startswith("tpu-vm scp") and "bert:posenc_jax.tgz" in copy
    assert option(copy, "--worker") == option(install, "--worker") == "all"
    assert option(install, "--command").endswith("&& echo 'two  words'")
    archive = next(word for word in copy if word.endswith(".tgz"))
    assert "bert" in archive  # another slice's may be copied at the same time
    listed = subprocess.run(["tar", "-tzf", archive], capture_output=True, text=True)
    names = listed.stdout.splitlines()
    assert "./launch/local.sh" in names and "./posenc_jax/__main__.py" in names
    assert not [name for name in names if name.startswith(("./.git/", "./.venv/", "./out/"))]


def test_watch_makes_a_preempted_slice_anew_and_runs_the_same_line_again(stubs):
    # there is none; made; runs; is preempted; made again; runs to its end
    answers(stubs, "state", "ACTIVE", "ACTIVE", "ACTIVE", "SUSPENDED", "ACTIVE", "ACTIVE")
    answers(stubs, "codes", "code=none", "code=running", "code=none", "code=0")
    done = script(stubs, "watch", *SLICE, *TYPE, "--spot", "pretrain", "--workdir", "gs://b/a b")
    assert done.returncode == 0 and "is finished" in done.stdout, done.stderr
    verbs = [verb for verb in stubs.verbs() if "describe" not in verb]
    assert verbs.count("queued-resources delete bert") == 1
    starts = [option(call, "--command") for call in stubs.calls if "setsid" in call[-1]]
    assert len(starts) == 2 and starts[0] == starts[1] and "'gs://b/a b'" in starts[0]


def test_watch_creates_what_is_not_there(stubs):
    answers(stubs, "state", "")
    answers(stubs, "codes", "code=none", "code=0")
    stubs.add("gcloud", GCLOUD + 'case "$*" in *queued-resources\\ create*) echo ACTIVE >state ;; esac\n')
    done = script(stubs, "watch", *SLICE, *TYPE, "pretrain")
    assert done.returncode == 0, done.stderr
    assert stubs.verbs().count("queued-resources create bert") == 1


@pytest.mark.parametrize(
    ("codes", "said"),
    [(["code=0 code=1"], "the run ended with"), (["code=none"] * 9, "did not start in five tries")],
)
def test_watch_ends_with_1_where_the_run_fails(stubs, codes, said):
    answers(stubs, "state", "ACTIVE")
    answers(stubs, "codes", *codes)
    done = script(stubs, "watch", *SLICE, *TYPE, "pretrain")
    assert done.returncode == 1 and said in done.stderr


def test_watch_does_not_ask_for_ever_for_what_it_may_not_have(stubs):
    answers(stubs, "state", "")
    answers(stubs, "no_create", "")
    done = script(stubs, "watch", *SLICE, *TYPE, "pretrain")
    assert done.returncode == 1 and "quota" in done.stderr and len(stubs.calls) < 5


def test_watch_gives_up_on_a_slice_that_fails_each_time(stubs):
    answers(stubs, "state", "FAILED")
    done = script(stubs, "watch", *SLICE, *TYPE, "pretrain")
    assert done.returncode == 1 and "did not come up in five tries" in done.stderr
    assert stubs.verbs().count("queued-resources delete bert") == 4


OUTAGE = """
case "$*" in
  *queued-resources\\ create*)
    echo 'ERROR: no network' >&2
    echo x >>creations
    if [ "$(wc -l <creations)" -gt 1 ]; then echo ACTIVE >state; fi
    exit 1
    ;;
esac
"""


def test_watch_outlives_a_time_without_an_answer_of_gcloud(stubs):
    stubs.add("gcloud", GCLOUD + OUTAGE)
    answers(stubs, "state", "ACTIVE", "")
    answers(stubs, "codes", "code=running", "code=0")
    done = script(stubs, "watch", *SLICE, *TYPE, "pretrain")
    assert done.returncode == 0 and "no network" in done.stderr and "is finished" in done.stdout
    assert stubs.verbs().count("queued-resources create bert") == 2


def test_watch_outlives_preemptions_while_it_copies(stubs):
    stubs.add("gcloud", GCLOUD + 'case "$*" in *tpu-vm\\ scp*) [ "$(wc -l <codes)" = 1 ] || exit 1 ;; esac\n')
    answers(stubs, "state", *["ACTIVE", "SUSPENDED"] * 6, "ACTIVE")
    answers(stubs, "codes", *["code=none"] * 6, "code=0")
    done = script(stubs, "watch", *SLICE, *TYPE, "--spot", "pretrain")
    assert done.returncode == 0, done.stderr
    assert stubs.verbs().count("queued-resources delete bert") == 6


def test_watch_does_not_take_silence_for_the_end_of_the_run(stubs):
    answers(stubs, "state", "ACTIVE")
    answers(stubs, "codes", "", "Warning: none of the keys", "code=0")
    done = script(stubs, "watch", *SLICE, *TYPE, "pretrain")
    assert done.returncode == 0
    asked = [call for call in stubs.calls if "echo code=" in call[-1]]
    assert len(asked) == 3 and not [call for call in stubs.calls if "setsid" in call[-1]]


def test_an_error_of_gcloud_is_the_error_of_the_action(stubs):
    stubs.add("gcloud", "echo 'ERROR: denied' >&2; exit 4")
    for action in ("sync", "logs", "status", "stop", "delete"):
        done = script(stubs, action, *SLICE)
        assert done.returncode == 4 and "denied" in done.stderr, action


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", *SLICE], "create wants --type"),
        (["run", *SLICE], "run wants a command"),
        (["sync", "--zone", "z"], "--name is missing"),
        (["sync", "--name", "n"], "--zone is missing"),
        (["sync", *SLICE, "pretrain"], "takes no command"),
        (["sync", *SLICE, "--spott"], "no option '--spott'"),
        (["launch"], "no action 'launch'"),
        (["sync", "--name"], "--name has no value"),
        (["sync", "--name", "--zone", "z"], "--name has no value"),
        (["logs", *SLICE, "--worker="], "--worker has no value"),
        (["create", *SLICE, "--type", "v5e-8"], "--type v5litepod-8"),
    ],
)
def test_wrong_use_is_told_and_nothing_is_called(stubs, words, said):
    done = script(stubs, *words)
    assert done.returncode == 2 and said in done.stderr and stubs.calls == []


@pytest.mark.parametrize("action", ["create", "sync", "run", "watch", "exec", "logs", "status", "stop", "delete"])
def test_a_dry_run_is_a_shell_script_of_the_same_calls(stubs, action):
    command = ["pretrain", "--config.optimizer.warmup=8 %"] if action in ("run", "watch", "exec") else []
    words = [action, *SLICE, *TYPE]
    plan = script(stubs, *words, "--dry-run", *command)
    assert plan.returncode == 0 and stubs.calls == []
    assert script(stubs, "--dry-run", *words, *command).stdout == plan.stdout
    answers(stubs, "state", "ACTIVE")
    answers(stubs, "codes", "code=none", "code=0")
    assert stubs.run("bash", "-c", plan.stdout, cwd=stubs.folder.parent).returncode == 0
    planned = stubs.calls
    if action != "watch":  # whose plan also says what is done after a preemption
        (stubs.folder.parent / "calls").unlink()
        assert script(stubs, *words, *command).returncode == 0
        assert stubs.calls == planned


# ---- what the workers are told, done by a shell here -----------------------------------------------------------------

WORKER = """
for word; do last=$word; done
case "$*" in *tpu-vm\\ ssh*) cd home && exec bash -c "$last" ;; esac
"""


@pytest.fixture
def worker(stubs):
    """Folder posenc_jax of a worker, whose Python does what the file `do` says."""
    stubs.add("gcloud", WORKER)
    folder = stubs.folder.parent / "home" / "posenc_jax"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / ".runtime").touch()
    (folder / "launch").mkdir()
    shutil.copy(ROOT / "launch" / "local.sh", folder / "launch")
    python = folder / ".venv" / "bin" / "python"
    python.write_text('#!/usr/bin/env bash\nprintf "<%s>" "$@"; echo; . ./do\n')
    python.chmod(0o755)
    yield folder
    if (folder / "run.pid").exists():
        try:
            os.killpg(int((folder / "run.pid").read_text()), signal.SIGKILL)
        except ProcessLookupError:
            pass


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def asked(stubs):
    return script(stubs, "status", *SLICE).stdout.split()[-1]


def test_a_worker_runs_the_command_word_by_word_and_again_after_75(stubs, worker):
    (worker / "do").write_text("echo x >>count; [ $(wc -l <count) -gt 2 ] && exit 0; exit 75\n")
    assert asked(stubs) == "code=none"
    words = ["pretrain", "--config.optimizer.warmup=8 %", "it's"]
    assert script(stubs, "run", *SLICE, *words).returncode == 0
    wait_for(lambda: (worker / "run.code").exists())
    assert asked(stubs) == "code=0"
    ran = (worker / "run.log").read_text().splitlines()
    assert ran.count("<-m><posenc_jax><pretrain><--config.optimizer.warmup=8 %><it's>") == 3


def test_stop_lets_the_run_save_and_a_second_run_is_refused_before(stubs, worker):
    (worker / "do").write_text("trap 'echo saved; exit 75' TERM; echo started; while :; do sleep 0.05; done\n")
    assert script(stubs, "run", *SLICE, "pretrain").returncode == 0
    wait_for(lambda: "started" in (worker / "run.log").read_text())
    assert asked(stubs) == "code=running"
    again = script(stubs, "run", *SLICE, "pretrain")
    assert again.returncode == 1 and "going on already" in again.stderr
    assert script(stubs, "stop", *SLICE).returncode == 0
    wait_for(lambda: (worker / "run.code").exists())
    assert asked(stubs) == "code=75" and "saved" in (worker / "run.log").read_text()


def test_a_worker_that_was_shut_down_is_not_taken_for_running(stubs, worker):
    (worker / "run.pid").write_text("999999999\n")
    assert asked(stubs) == "code=none"


def test_exec_waits_and_passes_the_code_on(stubs, worker):
    (worker / "do").write_text("exit 3\n")
    done = script(stubs, "exec", *SLICE, "prepare", "a b")
    assert done.returncode == 3 and "<prepare><a b>" in done.stdout


def test_the_example_of_the_help_is_one_that_runs(stubs):
    text = script(stubs, "--help").stdout
    example = text[text.index("  launch/tpu_vm.sh watch") :].split("\n\n")[0].replace("\\\n", " ")
    words = shlex.split(example)[1:]
    assert script(stubs, words[0], "--dry-run", *words[1:]).returncode == 0
