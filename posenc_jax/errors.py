"""The two ways a user's mistake ends, and the exit codes of the front door.

A mistake is told in one sentence: what is wrong, the name and the value, and the mend. The front door prints the
sentence and exits with the class's code; only a defect of ours reaches the user as a traceback.
"""

DONE, FAILED, WRONG_USE, PREEMPTED = 0, 1, 2, 75


class UserError(Exception):
    """Data, a checkpoint or the environment is not as it must be (exit code 1)."""

    exit_code = FAILED


class UsageError(UserError):
    """A command line or a config that cannot be meant (exit code 2)."""

    exit_code = WRONG_USE
