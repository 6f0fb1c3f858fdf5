"""Jobs in one process and in several: each done once, what fails is tried once more and told, nothing else is lost."""

import collections
import functools
import itertools
import os
import time
from pathlib import Path

import pytest

from posenc_jax.errors import UserError
from posenc_jax.evaluation.glue.jobs import Job, open_runner
from posenc_jax.evaluation.glue.progress import JobProgress
from tests.evaluation.glue.benches import Counting, Killed, Slow, refusing

JOBS = [Job(f"{group}{number}", f"{group} number {number}", group, 1.0, None) for group in "ab" for number in range(3)]


def work(tmp_path, processes, failing=()):
    told = []
    with open_runner(functools.partial(Counting, tmp_path, failing), processes) as runner:
        assert runner.start == "here"
        runner.run(JOBS, lambda event, job, value: told.append((event, job.id, value)))
    done = {name: value for event, name, value in told if event == "done"}
    failed = {name: value for event, name, value in told if event == "failed"}
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    return done, failed, lines, told


@pytest.mark.parametrize("processes", [1, 2])
def test_every_job_is_done_once_and_a_failed_one_once_more(tmp_path, processes):
    failing = {"a0": "once", "b0": "always", "b2": "again"} | ({"a2": "killed"} if processes == 2 else {})
    done, failed, lines, told = work(tmp_path, processes, failing)
    assert done == {name: name.upper() for name in ("a0", "a1", "a2", "b1")}
    assert failed["b2"] == "the loss is not finite"  # would be so again: not tried twice
    assert failed["b0"].startswith("ValueError: no memory (benches.py line ") and set(failed) == {"b0", "b2"}
    tries = collections.Counter(name for name, _ in lines)
    assert tries == {name: 2 if failing.get(name) in ("once", "always", "killed") else 1 for name in tries}
    assert ("step", "a1", (0.5, "half")) in told
    again = {name for event, name, _ in told if event == "again"}
    assert again == {name for name in failing if failing[name] in ("once", "always", "killed")}
    assert (len({process for _, process in lines}) > 1) == (processes > 1)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_full_disk_ends_all_jobs_at_the_first(tmp_path, processes):
    with pytest.raises(OSError, match="No space left"):
        work(tmp_path, processes, {job.id: "full" for job in JOBS})
    assert len((tmp_path / "log").read_text().splitlines()) <= processes


def test_a_process_that_keeps_ending_fails_its_job_with_the_reason(tmp_path):
    told = []
    with open_runner(functools.partial(Killed, "here"), 2) as runner:
        runner.run(JOBS[:1], lambda event, job, value: told.append((event, value)))
    assert told[-1] == ("failed", "its process ended (killed by SIGKILL)")


def test_processes_keep_to_their_group(tmp_path):
    _, _, lines, _ = work(tmp_path, 2)
    groups = collections.defaultdict(list)
    for name, process in lines:
        groups[process].append(name[0])
    changes = sum(a != b for names in groups.values() for a, b in itertools.pairwise(names))
    assert changes <= 1


def test_a_bench_that_cannot_be_opened_is_the_callers_error():
    with pytest.raises(UserError, match="no checkpoint"), open_runner(refusing, 2):
        pass


def alive(process):
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"


def test_an_interrupt_ends_the_processes(tmp_path):
    def tell(event, job, value):
        if len(list(tmp_path.iterdir())) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_runner(functools.partial(Slow, tmp_path), 2) as runner:
        runner.run(JOBS, tell)
    assert not any(alive(path.name) for path in tmp_path.iterdir())


def test_progress_names_done_running_left_and_the_time(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = JobProgress(JOBS[:4], found=2)
    assert progress.line() == "jobs: 2 done, 0 running, 4 left, ETA unknown yet"
    progress.begin(JOBS[0])
    now[0] += 10
    progress.step(JOBS[0], 0.5, "step 5/10, loss 0.1")
    assert progress.line() == "jobs: 2 done, 1 running (a number 0), 3 left, ETA 1 min 10 s"
    progress.begin(JOBS[1])
    progress.again(JOBS[1], "no memory")
    assert progress.line() == "jobs: 2 done, 1 running (a number 0), 3 left, ETA 1 min 10 s"
    progress.end(JOBS[0], "accuracy 50")
    progress.begin(JOBS[1])
    progress.end(JOBS[1], "failed", failed=True)
    assert progress.line() == "jobs: 3 done, 0 running, 1 failed, 2 left, ETA 10 s"
    progress.close()
    printed = capsys.readouterr().out
    assert "a number 1  will be tried once more: no memory" in printed
    assert (
        "a number 0  step 5/10, loss 0.1  jobs: 2 done, 1 running" in printed and "a number 0  accuracy 50" in printed
    )
