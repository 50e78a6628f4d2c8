"""The errors stepset raises on purpose, and the exit code each one means.

Every door (CLI, operator, component) catches `StepsetError` and shows its text as it is: one line that says
what was wrong, where, and what to do.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line (design: states, failures, exit codes)."""

    SUCCESS = 0
    TRAINING_FAILED = 1
    BAD_INPUT = 2
    INFRASTRUCTURE = 3
    TIMED_OUT = 4
    INTERRUPTED = 130


class StepsetError(Exception):
    """Base of all errors that carry a message for people."""

    exit_code: ExitCode = ExitCode.INFRASTRUCTURE


class BadInputError(StepsetError):
    """What was asked for cannot be done as asked; retrying the same request cannot help.

    Args:
        problems: one line each, `field: what is wrong; what to do`.
        where: the file or object that holds the input, put before every line.
    """

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, *problems: str, where: str = "") -> None:
        self.problems = problems
        self.where = where
        super().__init__("\n".join(f"{where}: {p}" if where else p for p in problems))

    def at(self, where: str) -> BadInputError:
        """The same problems, said to be in `where`."""
        return BadInputError(*self.problems, where=where)


class InfrastructureError(StepsetError):
    """Something outside the job failed (disk, cluster, network); the same request may succeed later."""


class RunNotFoundError(StepsetError):
    """No run of that name is known where it was looked for."""

    exit_code = ExitCode.BAD_INPUT
