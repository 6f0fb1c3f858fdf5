"""Programs of clouds that only write down how they were called, and answer from a script of the test."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

STUB = """#!/usr/bin/env bash
# Each call is a line of words between tabs.
(IFS=$'\\t'; printf '%s\\n' "${{*//$'\\n'/ }}" >>"{calls}")
{answer}
"""


class Stubs:
    """A folder to be put first on PATH, and what its programs were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._calls = folder / "bin", folder / "calls"
        self.folder.mkdir()

    def add(self, name: str, answer: str = "") -> None:
        """A program; `answer` are lines of bash, in which "$@" are its words."""
        words = f'set -- {name} "$@"\n'
        text = STUB.format(calls=self._calls, answer=f"shift\n{answer}").replace("(IFS", words + "(IFS", 1)
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def run(self, *words, cwd=ROOT, **environment):
        path = f"{self.folder}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "POLL": "0", "TMPDIR": str(self.folder.parent), **environment}
        return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=env, timeout=60)

    @property
    def calls(self) -> list[list[str]]:
        if not self._calls.exists():
            return []
        return [line.split("\t") for line in self._calls.read_text().splitlines()]

    def verbs(self) -> list[str]:
        """Of each call the words before the first option, without `gcloud compute tpus`."""
        return [
            " ".join(w for w in _until_option(call) if w not in ("gcloud", "compute", "tpus")) for call in self.calls
        ]


def _until_option(call):
    for word in call:
        if word.startswith("-"):
            return
        yield word
