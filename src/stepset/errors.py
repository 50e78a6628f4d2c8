"""The errors that stepset raises for its users.

Every interface (CLI, Airflow operator, KFP component) catches `StepsetError` and shows its message unchanged. Each
line of the message states what is wrong, where, and what to do.
"""

from __future__ import annotations

import os
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from stepset.exit_code import ExitCode
from stepset.printable import printable_text

if TYPE_CHECKING:
    from stepset.run_status import Failure, RunStatus


_SHOWN = 20
"""The maximum number of problems in a message. A generated job file can have thousands of problems."""
_HEAD, _TAIL = 600, 300
"""If a problem is too long, only this number of characters from its start and from its end is kept. The middle can be a
long value of the job file, and the end states what to do."""


def _shortened(text: str) -> str:
    """Returns a problem as one line.

    A problem can contain keys and values of a job file, and these can contain line breaks.
    """
    text = " ".join(text.splitlines())
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} ... {text[-_TAIL:]}"


class StepsetError(Exception):
    """The base class of all errors whose message is for users."""

    exit_code: ExitCode = ExitCode.INFRASTRUCTURE

    def __str__(self) -> str:
        """Returns the message without unprintable characters. Parts of the message can come from a server or a file."""
        return printable_text(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython and notebooks show for the error.

        By default, the lines contain only the message and the notes. If STEPSET_DEBUG=1 is set, the lines also contain
        the traceback of the error and of its causes.
        """
        if _debugs():
            return printable_text("".join(traceback.format_exception(self)).rstrip()).split("\n")
        notes = "\n".join(getattr(self, "__notes__", ()))
        return [f"{type(self).__name__}: {self}", *printable_text(notes).splitlines()]


def _debugs() -> bool:
    """Returns whether the user wants to see tracebacks of stepset."""
    return os.environ.get("STEPSET_DEBUG", "") not in ("", "0")


def explain_interrupt(error: BaseException, message: str) -> None:
    """Sets the message of an interruption. IPython and notebooks then show only this message, as for a StepsetError.

    Has no effect on other errors than KeyboardInterrupt and asyncio.CancelledError.
    """
    if isinstance(error, (Exception, SystemExit, GeneratorExit)):
        return
    text = printable_text(message)
    if isinstance(error, KeyboardInterrupt):
        error.args = (text,)
    if not _debugs():
        lines = [f"{type(error).__name__}: {text}"]
        error._render_traceback_ = partial(list, lines)  # type: ignore[attr-defined]  # IPython calls this attribute


class BadInputError(StepsetError):
    """The request is invalid. A retry of the same request fails again.

    Args:
        problems: the problems, one line each, in the form `field: what is wrong; what to do`.
        where: the file or object that contains the input. Every line of the message starts with `where`.
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
        """Returns an error with the same problems. Each line of the new message starts with `where`."""
        return BadInputError(*self.problems, where=where)


class InfrastructureError(StepsetError):
    """Something outside the job failed, such as a disk or the network. The same request may succeed later."""


class RunStoppedError(StepsetError):
    """The caller stopped the run before its ranks started."""

    exit_code = ExitCode.INTERRUPTED


class RunNotFoundError(StepsetError):
    """The backend has no run with this name."""

    exit_code = ExitCode.BAD_INPUT


class HiddenRunError(RunNotFoundError):
    """The account lacks permissions, and the runs that the account may read contain no run with this name."""

    exit_code = ExitCode.INFRASTRUCTURE


class TrainingFailedError(StepsetError):
    """The run did not succeed.

    Args:
        message: one line that states what happened and what to do.
        status: the final status of the run. `status.failure` states the reason.

    Unless a notebook cell shows the status, a note of the error (PEP 678) contains the last lines of the rank that
    failed first, and the call of `stepset.diagnose`. Python shows the note in tracebacks, even in the traceback of an
    ExceptionGroup.
    """

    def __init__(self, message: str, status: RunStatus) -> None:
        super().__init__(message)
        self.status = status
        self.failure: Failure | None = status.failure
        self.exit_code: ExitCode = status.exit_code

    def __reduce__(self) -> tuple[type[TrainingFailedError], tuple[str, RunStatus], dict[str, Any]]:
        """Pickles the error with its status, because a process pool returns the exception of a worker process."""
        return type(self), (str(self), self.status), self.__dict__

    def _repr_html_(self) -> str:
        """Returns the final status as HTML for notebooks, with the diagnosis and the last lines of the failed rank."""
        return self.status._repr_html_()
