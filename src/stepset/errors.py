"""The errors that stepset raises for its users.

Every interface (CLI, operator, component) catches `StepsetError` and shows its text unchanged: one line that states
what is wrong, where, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepset.exit_code import ExitCode
from stepset.printable import printable_text

if TYPE_CHECKING:
    from stepset.run_status import Failure, RunStatus


_SHOWN = 20
"""The maximum number of problems shown; a generated job file may have thousands."""
_HEAD, _TAIL = 600, 300
"""The characters kept from the start and the end of a long problem; the middle may be a value of the job file, the
remedy is at the end."""


def _shortened(text: str) -> str:
    """Returns a problem as one line, although it may contain line breaks of a job file's keys and values."""
    text = " ".join(text.splitlines())
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} ... {text[-_TAIL:]}"


class StepsetError(Exception):
    """Base of all errors whose message is for users."""

    exit_code: ExitCode = ExitCode.INFRASTRUCTURE

    def __str__(self) -> str:
        """Returns the message as printable lines: parts of it may come from a server or a file."""
        return printable_text(super().__str__())


class BadInputError(StepsetError):
    """The request is invalid; retrying it cannot help.

    Args:
        problems: one line for each problem, `field: what is wrong; what to do`.
        where: the file or object that contains the input; the prefix of every line.
    """

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, *problems: str, where: str = "") -> None:
        more = len(problems) - _SHOWN
        last = (f"{more} further problems are not shown; fix the problems above first",) if more > 0 else ()
        self.problems = (*map(_shortened, problems[:_SHOWN]), *last)
        self.where = where
        place = f"{_shortened(where)}: " if where else ""
        super().__init__("\n".join(f"{place}{problem}" for problem in self.problems))

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
