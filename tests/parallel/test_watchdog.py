"""A run that stops moving is ended, with its stacks; one that moves is left alone."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(body):
    code = f"import time\nfrom posenc_jax.parallel.watchdog import Watchdog\ndef stuck(): time.sleep(30)\n{body}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_a_run_that_stands_still_shows_where_and_ends_with_75():
    done = run("with Watchdog(0.2 / 60) as dog:\n    dog.beat()\n    stuck()")
    assert done.returncode == 75 and "in stuck" in done.stderr
    assert done.stderr.endswith("run the same line again to go on from the newest checkpoint\n")


def test_a_run_that_moves_goes_on():
    beats = "    for _ in range(20):\n        dog.beat()\n        time.sleep(0.1)\n"
    done = run(f"with Watchdog(1 / 60) as dog:\n{beats}print('end')")
    assert done.returncode == 0 and done.stdout == "end\n" and done.stderr == ""


@pytest.mark.parametrize(
    "body", ["with Watchdog(0): time.sleep(0.3)", "with Watchdog(0.2 / 60): pass\ntime.sleep(0.5)"]
)
def test_it_is_off_at_0_and_after_the_run(body):
    assert run(body).returncode == 0


def test_one_watchdog_after_another():
    done = run("with Watchdog(0.2 / 60): pass\ntime.sleep(0.5)\nwith Watchdog(0.2 / 60): stuck()")
    assert done.returncode == 75
