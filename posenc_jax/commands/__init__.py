"""One thin file a command: parse, call, print."""

import argparse


class WithDefaults(argparse.ArgumentDefaultsHelpFormatter):
    """`--help` with each default in brackets; of an option without one the help says in words what happens."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)
