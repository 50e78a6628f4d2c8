"""The errors that stepset raises on purpose, and the exit code of each.

Every interface (CLI, operator, component) catches `StepsetError` and shows its text unchanged: one line that states
what is wrong, where, and what to do.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.watch.state import Failure, RunStatus


class ExitCode(IntEnum):
    """Exit codes of the command line (design: states, failures, exit codes)."""

    SUCCESS = 0
    TRAINING_FAILED = 1
    BAD_INPUT = 2
    INFRASTRUCTURE = 3
    TIMED_OUT = 4
    INTERRUPTED = 130


class StepsetError(Exception):
    """Base of all errors whose message is for users."""

    exit_code: ExitCode = ExitCode.INFRASTRUCTURE


class BadInputError(StepsetError):
    """The request is invalid; retrying it cannot help.

    Args:
        problems: one line for each problem, `field: what is wrong; what to do`.
        where: the file or object that contains the input; the prefix of every line.
    """

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, *problems: str, where: str = "") -> None:
        self.problems = problems
        self.where = where
        super().__init__("\n".join(f"{where}: {p}" if where else p for p in problems))

    def at(self, where: str) -> BadInputError:
        """Returns the same problems, located in `where`."""
        return BadInputError(*self.problems, where=where)


class InfrastructureError(StepsetError):
    """Something outside the job failed (disk, cluster, network); the same request may succeed later."""


class RunNotFoundError(StepsetError):
    """The backend has no run with this name."""

    exit_code = ExitCode.BAD_INPUT


class TrainingFailedError(StepsetError):
    """The run ended without success.

    Args:
        message: what happened and what to do, one line.
        status: the run's final status; `status.failure` states the reason.
    """

    def __init__(self, message: str, status: RunStatus) -> None:
        super().__init__(message)
        self.status = status
        self.failure: Failure | None = status.failure
        self.exit_code: ExitCode = status.exit_code

    def __reduce__(self) -> tuple[type[TrainingFailedError], tuple[str, RunStatus]]:
        """Pickles the status, too: a process pool returns the exception of a worker process."""
        return type(self), (str(self), self.status)
