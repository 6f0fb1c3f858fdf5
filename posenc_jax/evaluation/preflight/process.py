"""The compiling process, as seen from the command."""

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from posenc_jax.config import Config, config_to_dict
from posenc_jax.errors import UsageError, UserError
from posenc_jax.parallel.topologies import Topology, check_compiler, compiler_environment

WORKER = (sys.executable, "-m", "posenc_jax.evaluation.preflight.worker")
_FATAL = re.compile(r"^F\d{4} |Check failed|terminate called|Error:|ERROR:")


@dataclasses.dataclass(frozen=True)
class Question:
    """A run to be, and what it shall run on."""

    config: Config
    """With `model.vocab_size`."""
    length: int
    topology: Topology
    restarts: bool = False
    """Rows hold several documents."""
    memory_only: bool = False
    draft: bool = False
    """As `compile_step` has them."""

    def line(self) -> str:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        topology = (self.topology.chip, self.topology.grid, self.topology.slices)
        return json.dumps({**plain, "config": config_to_dict(self.config), "topology": topology})


Ask = Callable[[Question], dict[str, Any]]
"""Question -> facts of `compile_step`."""


@contextmanager
def compiler(command: Sequence[str] = WORKER) -> Iterator[Ask]:
    """Yields ask(question) -> facts. The process starts with the first question, and again with the next one after it
    died. ask raises what training would raise, and `UserError` where the compiler cannot be loaded or dies."""
    running: list[subprocess.Popen] = []
    with tempfile.TemporaryFile("w+", errors="replace") as log:

        def ask(question: Question) -> dict[str, Any]:
            if not running:
                check_compiler()
                pipe = subprocess.PIPE
                # A session of its own: Ctrl-C is for the command, which then ends it.
                running.append(
                    subprocess.Popen(
                        command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=compiler_environment(),
                        start_new_session=True,
                    )
                )  # fmt: skip
            process = running[0]
            try:
                process.stdin.write(question.line() + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                running.clear()
                raise UserError(_death(process, log, question.topology))
            facts = json.loads(line)
            if "refused" in facts:
                raise (UsageError if facts["exit_code"] == UsageError.exit_code else UserError)(facts["refused"])
            return facts

        try:
            yield ask
        finally:
            for process in running:
                process.kill()
                process.communicate()


def _death(process: subprocess.Popen, log: Any, topology: Topology) -> str:
    code = process.wait()
    log.seek(0)
    lines = [line.strip() for line in log if line.strip()]
    fatal = [line for line in lines if _FATAL.search(line)] or lines or ["it said nothing"]
    how = f"died of signal {-code}" if code < 0 else f"ended with code {code}"
    if any("libtpu_lockfile" in line or "already in use" in line for line in lines):
        return f"another process holds libtpu; end it, or wait, and try again (the compiler said: {fatal[-1][:300]})"
    want = "; it may want more memory than this machine has" if code == -9 else ""
    return f"the process that compiles for {topology} {how}{want}; its last words: {fatal[-1][:300]}"
