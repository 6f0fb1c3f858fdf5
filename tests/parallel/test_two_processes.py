"""Two real processes on this machine, which meet over loopback: a run in them is the run of one process."""

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.tiny_rows import write_rows

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "model.width": 16, "model.feed_forward_width": 32, "model.layers": 1, "model.dropout": 0.1, "train.steps": 60,
    "train.batch_size": 8, "train.log_every": 1, "train.eval_every": 0, "train.eval_rows": 16,
    "train.checkpoint_every": 0, "optimizer.warmup": 5,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Runner:
    folder: Path

    def start(self, workdir, *words, config="tupe.py:tupe_r", devices=1, **overrides):
        settings = {**SETTINGS, **{name.replace("__", "."): value for name, value in overrides.items()}}
        command = [
            sys.executable, "-m", "posenc_jax", "pretrain", "--config", f"configs/{config},tiny,length=16",
            "--data", str(self.folder / "rows"), "--workdir", str(workdir), *words,
            *(f"--config.{key}={value}" for key, value in settings.items()),
        ]  # fmt: skip
        env = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_backend_optimization_level=0 --xla_force_host_platform_device_count={devices}",
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        return subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def start_two(self, workdir, **settings):
        port = free_port()
        return [
            self.start(
                workdir, "--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process-id", str(i), **settings
            )
            for i in range(2)
        ]


def free_port():
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def ends(processes):
    """Exit codes and outputs."""
    try:
        outputs = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], outputs


def losses(workdir, kind="train"):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == kind}


def last_step(workdir):
    try:
        return max(losses(workdir), default=0)
    except (OSError, ValueError):
        return 0


def wait_for(condition, processes):
    end = time.monotonic() + 240
    while not condition():
        assert all(process.poll() is None for process in processes), ends(processes)
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    write_rows(folder / "rows", train=90)
    return Runner(folder)


def test_a_run_moves_from_eight_devices_of_two_processes_to_one_and_to_two_and_loses_nothing(runner):
    whole, workdir = runner.folder / "whole", runner.folder / "moved"
    codes, outputs = ends([runner.start(whole)])
    assert codes == [0], outputs

    processes = runner.start_two(workdir, devices=4)
    wait_for((workdir / "checkpoints").exists, processes)  # JAX listens, and the first step is not yet compiled
    processes[1].send_signal(signal.SIGTERM)  # one of them is asked, both stop after the same step
    codes, outputs = ends(processes)
    assert codes == [75, 75], outputs
    stopped = max(int(folder.name) for folder in (workdir / "checkpoints").iterdir() if folder.name.isdigit())
    assert f"stopped and saved at step {stopped}" in outputs[0] and 0 < stopped < 60

    process = runner.start(workdir)
    wait_for(lambda: last_step(workdir) > stopped, [process])
    process.send_signal(signal.SIGTERM)
    codes, outputs = ends([process])
    assert codes == [75] and f"goes on from step {stopped}" in outputs[0], outputs

    stopped = last_step(workdir)
    processes = runner.start_two(workdir)
    wait_for(lambda: last_step(workdir) > stopped, processes)
    processes[1].kill()  # and is missed by the other, at once
    codes, outputs = ends(processes)
    assert codes[0] in (75, -signal.SIGABRT) and codes[1] == -9, outputs
    assert codes[0] != 75 or "error: another process of this run is gone" in outputs[0]

    codes, outputs = ends(runner.start_two(workdir))
    assert codes == [0, 0] and "finished at step 60" in outputs[0] and "finished" not in outputs[1], outputs
    for kind in ("train", "validation"):
        one, moved = losses(whole, kind), losses(workdir, kind)
        assert one.keys() <= moved.keys()
        np.testing.assert_allclose([moved[step] for step in one], list(one.values()), rtol=1e-3)


@pytest.mark.full
def test_replaced_token_detection_in_two_processes_is_that_of_one(runner):
    one, two = runner.folder / "rtd_one", runner.folder / "rtd_two"
    settings = dict(config="electra.py:electra", train__steps=6, model__layers=2, rtd__generator_size=0.5)
    codes, outputs = ends([runner.start(one, **settings)])
    assert codes == [0], outputs
    codes, outputs = ends(runner.start_two(two, **settings))
    assert codes == [0, 0], outputs
    for kind in ("train", "validation"):
        np.testing.assert_allclose(list(losses(two, kind).values()), list(losses(one, kind).values()), rtol=1e-4)


def test_other_settings_in_one_of_the_processes_are_refused_by_both(runner):
    port, workdir = free_port(), runner.folder / "refused"
    words = ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process-id"]
    codes, outputs = ends([runner.start(workdir, *words, str(i), train__seed=i) for i in range(2)])
    assert codes == [1, 1] and all("settings of process 1 differ" in output for output in outputs), outputs
    assert not (workdir / "config.json").exists()
