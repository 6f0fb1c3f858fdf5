"""Commands in processes of their own that start at once: importing takes longer than a small run, so one process that
has imported what training needs is forked for each."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SERVER = """
import json, os, sys
import posenc_jax.commands.pretrain, posenc_jax.objectives.pretraining
from posenc_jax.__main__ import main
for line in sys.stdin:
    words, log = json.loads(line)
    if (child := os.fork()) == 0:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1), os.dup2(file, 2)
        try:
            code = main(words)
            sys.stdout.flush()
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 99
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """One command at a time; what it says goes to `log`."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, words: list[str]) -> int:
        """The process id of `posenc_jax WORDS`."""
        print(json.dumps([words, str(self.log)]), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self) -> int:
        """Waits for it; its exit code, or less than 0 the signal that ended it."""
        return int(self.process.stdout.readline())

    def run(self, words: list[str]) -> tuple[int, str]:
        """Exit code and output."""
        self.log.write_bytes(b"")
        self.start(words)
        return self.end(), self.log.read_text()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
