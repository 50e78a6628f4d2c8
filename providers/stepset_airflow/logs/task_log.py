"""Writes to the task's log while a run is in progress.

The task's log contains the lines of the selected ranks, and messages about the state of the run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from stepset_airflow.airflow_internals import redact
from stepset_airflow.logs.deduplicate import LogDeduplicator
from stepset_airflow.transferable import masked_status

if TYPE_CHECKING:
    from stepset.backends.base import RunListener
    from stepset.run_status import LogLine, Progress, RunStatus
    from stepset.watch.lines import OpenLine
    from stepset.watch.present.records import Record

_RESULT_LENGTH = 1000
"""Maximum number of characters of the run's result in the task log."""

StatusCallback = Callable[[dict[str, Any]], None]


class Log(Protocol):
    """The logger methods with which this package writes to a task log."""

    def info(self, event: str, /) -> Any: ...

    def warning(self, event: str, /) -> Any: ...

    def exception(self, event: str, /) -> Any: ...


def ranks_to_log(log_ranks: str | int | Iterable[int | str]) -> frozenset[int] | None:
    """Converts the parameter `log_ranks` to a set of ranks. None means all ranks.

    Raises ValueError if the value is invalid.
    """
    from stepset.errors import BadInputError
    from stepset.watch.present import sources

    try:
        return sources.ranks_to_log(log_ranks)
    except BadInputError as error:
        raise ValueError(str(error)) from error


def find_callbacks(paths: str | Sequence[str] | None) -> tuple[StatusCallback, ...]:
    """Imports the functions with the given dotted paths, such as `my_package.hooks.on_change`, and returns them.

    Raises BadInputError if a function cannot be imported.
    """
    from stepset.errors import BadInputError

    found = []
    for path in [paths] if isinstance(paths, str) else paths or ():
        try:
            found.append(resolve_name(path))
        except (ImportError, AttributeError, ValueError) as error:
            raise BadInputError(f"callbacks: {path!r} cannot be imported: {error}; give a dotted path") from error
    return tuple(found)


class TaskLog:
    """A listener of a run that writes to a task log.

    Args:
        log: the logger of the task.
        ranks: the ranks whose lines are written. None means all ranks. Lines of launchers and roles are also written,
            unless `ranks` is empty.
        callbacks: functions that are called with `RunStatus.to_dict()` after every change of the status.
        reported: the value of `TaskLog.reported` in the previous process that wrote to the log. None if there was no
            previous process.
        written: the lines that the previous process wrote after it had stored `reported`. These lines are not written
            again.
    """

    def __init__(
        self,
        log: Log,
        ranks: frozenset[int] | None = None,
        callbacks: tuple[StatusCallback, ...] = (),
        reported: Mapping[str, Any] | None = None,
        written: Iterable[str] = (),
    ) -> None:
        from stepset.printable import printable_line, printable_text
        from stepset.watch.present import sources
        from stepset.watch.present.presenter import Presenter

        self._log, self._ranks, self._callbacks, self._sources = log, ranks, callbacks, sources
        self._printable_line, self._printable_text = printable_line, printable_text
        before, self._written = dict(reported or {}), LogDeduplicator(written)
        self._presenter = Presenter({**before, "phase": self._written.phase or before.get("phase", "")})

    @property
    def reported(self) -> dict[str, Any]:
        """The messages that the log already contains about the run, as plain data.

        A process that continues the log passes this value to its TaskLog. The messages are then not repeated.
        """
        return self._presenter.presented

    @property
    def progress(self) -> Progress | None:
        """The progress that was most recently written to the log."""
        return self._presenter.progress

    def on_line(self, line: LogLine) -> None:
        if self._sources.is_shown(line.source, self._ranks) and self._presenter.shows(line):
            self._write_line(line)

    def on_open_line(self, line: OpenLine) -> None:
        shown = self._sources.is_shown(line.source, self._ranks)
        if shown and self._presenter.shows_open(line, time.monotonic()):
            self._write_line(line)

    def on_status(self, status: RunStatus) -> None:
        self._write(self._presenter.see(status, time.monotonic()), status.result)
        for callback in self._callbacks:
            self.call(callback, status)

    def note(self, note: str) -> None:
        """Writes a note about the run, unless the same note was written before."""
        self._write(self._presenter.note(note))

    def call(self, callback: StatusCallback, status: RunStatus) -> None:
        """Calls a callback. If the callback raises an exception, logs the exception and continues."""
        try:
            callback(status.to_dict())
        except Exception:  # noqa: BLE001 - the user's code must not stop the training
            self._log.exception(f"callback {getattr(callback, '__qualname__', callback)} failed; the run continues")

    def _write_line(self, line: LogLine | OpenLine) -> None:
        text = f"{self._sources.prefix(line.source)} {self._printable_line(self._sources.shown_text(line))}"
        if not self._written.consume(text):
            self._log.info(text)

    def _write(self, records: Iterable[Record], result: Any = None) -> None:
        """Writes records to the log. Writes `result` after the record of the run's end, unless `result` is None."""
        from stepset.watch.present.records import FirstFailure, RunEnded

        for record in records:
            # A FirstFailure is not written, because the message of the task's exception already describes the failure.
            text = self._printable_text(record.text)
            if not isinstance(record, FirstFailure) and not self._written.consume(text):
                write = self._log.info if record.level == "info" else self._log.warning
                write(text)
            if isinstance(record, RunEnded) and result is not None:
                self._write_result(result)

    def _write_result(self, result: Any) -> None:
        """Writes the result. Secrets that Airflow masks in logs are masked. A long result is truncated."""
        shown = self._printable_line(json.dumps(redact(result), ensure_ascii=False))
        text = f"result: {shown if len(shown) <= _RESULT_LENGTH else f'{shown[:_RESULT_LENGTH]}... (XCom has all)'}"
        if not self._written.consume(text):
            self._log.info(text)


class Listeners:
    """A listener of a run that forwards each call to several other listeners, in the given order.

    The secrets in the result of a run are masked before the other listeners receive the result.
    """

    def __init__(self, *listeners: RunListener) -> None:
        self._listeners = listeners

    def on_line(self, line: LogLine) -> None:
        for listener in self._listeners:
            listener.on_line(line)

    def on_open_line(self, line: OpenLine) -> None:
        from stepset.backends.base import pass_line

        for listener in self._listeners:
            pass_line(listener, line)

    def on_status(self, status: RunStatus) -> None:
        status = masked_status(status)
        for listener in self._listeners:
            listener.on_status(status)
