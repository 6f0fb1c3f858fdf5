"""Killed again and again, or out of room, a run ends as if nothing had been."""

import concurrent.futures
import contextlib
import os
import random
import signal
import subprocess
import time

import pytest

from tests.forks import Forks
from tests.objectives.test_pretraining import assert_same_end, environment, words
from tests.tiny_rows import write_rows


class Runs(Forks):
    """Runs on one folder of rows, one at a time; each Runs of a folder is a lane of its own."""

    def __init__(self, folder, lane) -> None:
        super().__init__(environment(folder / "cache"), folder / f"log{lane}")
        self.folder = folder

    def start(self, workdir) -> int:
        return super().start(words(self.folder / "rows", workdir, train__checkpoint_every=10))

    def run(self, workdir) -> None:
        self.start(workdir)
        assert self.end() == 0, self.log.read_text()[-3000:]


@pytest.fixture(scope="module")
def lanes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    write_rows(folder / "rows", train=90)
    lanes = [Runs(folder, number) for number in range(2)]
    yield lanes
    for lane in lanes:
        lane.close()


@pytest.fixture(scope="module")
def whole(lanes):
    """A run that nothing interrupted."""
    lanes[0].run(lanes[0].folder / "whole")
    return lanes[0].folder / "whole"


def unfinished(workdir):
    return list((workdir / "checkpoints").glob("*orbax-checkpoint-tmp*"))


def wait_for(pid, condition):
    while os.path.exists(f"/proc/{pid}/exe") and not condition():
        time.sleep(0.002)


def wait_for_a_line(pid, metrics, launched):
    """Until a step of this start has been logged."""
    wait_for(pid, lambda: metrics.exists() and metrics.stat().st_mtime >= launched)
    size = metrics.stat().st_size if metrics.exists() else 0
    wait_for(pid, lambda: metrics.stat().st_size > size)


def kill_once(runs, workdir, moments, kind):
    """Starts the run and kills it: while it starts, while it trains, or while it saves. True if it was killed, False
    if it had ended by then."""
    launched = time.time()
    pid = runs.start(workdir)
    if kind == "start":
        time.sleep(moments.uniform(0, 1))
    else:
        wait_for_a_line(pid, workdir / "metrics.jsonl", launched)
        if kind == "training":
            time.sleep(moments.uniform(0, 0.3))
        else:
            wait_for(pid, lambda: unfinished(workdir))
            time.sleep(moments.uniform(0, 0.005))
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    code = runs.end()
    assert code in (-signal.SIGKILL, 0), runs.log.read_text()[-3000:]
    return code != 0


def kill_and_finish(runs, name, times, whole, torn_wanted=2):
    """Kills runs `times` in all, each workdir until it is finished, and then while they save until so many of the kills
    have left half a checkpoint, in 20 workdirs at most; how many did."""
    moments, kills, torn, number = random.Random(name), 0, 0, 0

    def is_enough():
        return kills >= times and (torn >= torn_wanted or number >= 20)

    while not is_enough():
        number += 1
        workdir = runs.folder / f"{name}{number}"
        while not is_enough():
            kind = moments.choice(["start", "training", "saving"]) if kills < times else "saving"
            if not kill_once(runs, workdir, moments, kind):
                break
            kills += 1
            torn += bool(unfinished(workdir))
        runs.run(workdir)
        assert_same_end(workdir, whole)
        assert not unfinished(workdir)
    return torn


def test_killed_thirty_times_also_while_it_saves_it_ends_bit_for_bit_the_same(lanes, whole):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        torn = pool.map(kill_and_finish, lanes, ["a", "b"], [15, 15], [whole, whole])
    assert min(torn) >= 2


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder]).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(file):
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stuff:
        while True:
            stuff.write(bytes(4096))


@pytest.mark.parametrize("moment", ["before a checkpoint", "after one", "during the next"])
def test_a_disk_that_fills_up_while_it_trains_is_one_sentence_and_what_was_saved_is_whole(lanes, whole, disk, moment):
    runs, workdir, launched = lanes[0], disk / "run", time.time()
    runs.log.unlink(missing_ok=True)
    pid = runs.start(workdir)
    if moment == "before a checkpoint":
        wait_for_a_line(pid, workdir / "metrics.jsonl", launched)
    else:
        wait_for(pid, (workdir / "checkpoints" / "10").exists)
        wait_for(pid, lambda: moment == "after one" or unfinished(workdir))
    fill(disk / "filler")
    assert runs.end() == 1
    said = runs.log.read_text()
    assert said.count("error: ") == 1 and "Traceback" not in said and "ERROR" not in said, said
    assert "run the same line again" in said.splitlines()[-1]
    (disk / "filler").unlink()
    saved = {path.name for path in (workdir / "checkpoints").iterdir() if path.name.isdigit()}
    assert bool(saved) == (moment != "before a checkpoint")
    runs.run(workdir)
    if saved:
        assert f"goes on from step {max(saved, key=int)}" in runs.log.read_text()
    assert_same_end(workdir, whole)
    assert not any(path.name.endswith("unreadable") for path in (workdir / "checkpoints").iterdir())
