"""One thin file a command: parse, call, print."""

import argparse
from pathlib import Path


class WithDefaults(argparse.ArgumentDefaultsHelpFormatter):
    """`--help` with each default in brackets; of an option without one the help says in words what happens."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def check_answer_file(parser: argparse.ArgumentParser, file: str | Path) -> None:
    """Refuses a `--json` that cannot be written, before the work whose answer it is to hold."""
    if not Path(file).absolute().parent.is_dir():
        parser.error(f"--json={file}: there is no folder {Path(file).parent}")
    if Path(file).is_dir():
        parser.error(f"--json={file} is a folder; name a file in it")
