"""Writes a run to its task's log while it runs: the selected ranks' lines and stepset's reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from stepset_airflow.logs.deduplicate import LogDeduplicator

if TYPE_CHECKING:
    from stepset.backends.base import RunListener
    from stepset.run_status import LogLine, Progress, RunStatus
    from stepset.watch.lines import OpenLine
    from stepset.watch.present.records import Record

StatusCallback = Callable[[dict[str, Any]], None]


class Log(Protocol):
    """The methods of a task's logger that this package calls."""

    def info(self, event: str, /) -> Any: ...

    def warning(self, event: str, /) -> Any: ...

    def exception(self, event: str, /) -> Any: ...


def ranks_to_log(log_ranks: str | int | Iterable[int | str]) -> frozenset[int] | None:
    """Like `stepset.watch.present.sources.ranks_to_log`, but raises ValueError."""
    from stepset.errors import BadInputError
    from stepset.watch.present import sources

    try:
        return sources.ranks_to_log(log_ranks)
    except BadInputError as error:
        raise ValueError(str(error)) from error


def find_callbacks(paths: str | Sequence[str] | None) -> tuple[StatusCallback, ...]:
    """Returns the functions of dotted paths such as `my_package.hooks.on_change`; raises BadInputError."""
    from stepset.errors import BadInputError

    found = []
    for path in [paths] if isinstance(paths, str) else paths or ():
        try:
            found.append(resolve_name(path))
        except (ImportError, AttributeError, ValueError) as error:
            raise BadInputError(f"callbacks: {path!r} cannot be imported: {error}; give a dotted path") from error
    return tuple(found)


class TaskLog:
    """A run's listener that writes to a task log.

    Args:
        ranks: ranks whose lines are written; None: all. Lines without a rank (launchers, roles) are written unless
            `ranks` is empty.
        callbacks: called with `RunStatus.to_dict()` at every change.
        reported: `reported` of the TaskLog of another process, which wrote to the log before.
        written: lines that the other process wrote after `reported`; they are not repeated.
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
        """The reports that were written, as plain data, so that another process does not repeat them."""
        return self._presenter.presented

    @property
    def progress(self) -> Progress | None:
        """The last progress that was written."""
        return self._presenter.progress

    def on_line(self, line: LogLine) -> None:
        if self._sources.is_shown(line.source, self._ranks) and self._presenter.shows(line):
            self._write_line(line)

    def on_open_line(self, line: OpenLine) -> None:
        shown = self._sources.is_shown(line.source, self._ranks)
        if shown and self._presenter.shows_open(line, time.monotonic()):
            self._write_line(line)

    def on_status(self, status: RunStatus) -> None:
        self._write(self._presenter.see(status, time.monotonic()))
        for callback in self._callbacks:
            self.call(callback, status)

    def note(self, note: str) -> None:
        """Writes a note on the run, unless it was written before."""
        self._write(self._presenter.note(note))

    def call(self, callback: StatusCallback, status: RunStatus) -> None:
        """Calls a callback; logs its error and continues."""
        try:
            callback(status.to_dict())
        except Exception:  # noqa: BLE001 - the user's code must not stop the training
            self._log.exception(f"callback {getattr(callback, '__qualname__', callback)} failed; the run continues")

    def _write_line(self, line: LogLine | OpenLine) -> None:
        text = f"{self._sources.prefix(line.source)} {self._printable_line(self._sources.shown_text(line))}"
        if not self._written.consume(text):
            self._log.info(text)

    def _write(self, records: Iterable[Record]) -> None:
        from stepset.watch.present.records import FirstFailure

        for record in records:
            # The exception that ends the task describes the failure.
            text = self._printable_text(record.text)
            if not isinstance(record, FirstFailure) and not self._written.consume(text):
                write = self._log.info if record.level == "info" else self._log.warning
                write(text)


class Listeners:
    """Several listeners of a run as one, called in their order."""

    def __init__(self, *listeners: RunListener) -> None:
        self._listeners = listeners

    def on_line(self, line: LogLine) -> None:
        for listener in self._listeners:
            listener.on_line(line)

    def on_open_line(self, line: OpenLine) -> None:
        from stepset.backends.base import OpenLineListener

        for listener in self._listeners:
            if isinstance(listener, OpenLineListener):
                listener.on_open_line(line)

    def on_status(self, status: RunStatus) -> None:
        for listener in self._listeners:
            listener.on_status(status)
