"""The two ways a user's mistake ends, and the exit codes of the front door.

A mistake is told in one sentence: what is wrong, the name and the value, and the mend. The front door prints the
sentence and exits with the class's code; only a defect of ours reaches the user as a traceback.
"""

import errno
import os
import sys

DONE, FAILED, WRONG_USE, PREEMPTED = 0, 1, 2, 75


class UserError(Exception):
    """Data, a checkpoint or the environment is not as it must be (exit code 1)."""

    exit_code = FAILED


class UsageError(UserError):
    """A command line or a config that cannot be meant (exit code 2)."""

    exit_code = WRONG_USE


def tell(error: BaseException) -> int | None:
    """Says on standard error how a user's mistake or the system's refusal ended the command, and returns the exit
    code; None, and nothing is said, where the error is a defect of ours."""
    match error:
        case UserError():
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        case BrokenPipeError():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        case OSError():  # a full disk, a read-only folder: the system's words and the file are the sentence
            place = f" ({error.filename})" if error.filename else ""
            mend = "; make room and run the same line again" if error.errno == errno.ENOSPC else ""
            print(f"error: {error.strerror or error}{place}{mend}", file=sys.stderr)
            return FAILED
        case KeyboardInterrupt():
            print("interrupted", file=sys.stderr)
            return 130
    return None
