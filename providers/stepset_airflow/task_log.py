"""Writes a run into the log of the task that asked for it: lines of the chosen ranks, phases and progress, live.

Made by the operator for each run; the backend calls it from the thread that runs the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from stepset_airflow.written import Written

if TYPE_CHECKING:
    from stepset.backends.base import RunListener
    from stepset.watch.state import LogLine, Progress, RunStatus

PROGRESS_EVERY = 1.0
"""Seconds between two progress lines; the last one is always written."""

StatusCallback = Callable[[dict[str, Any]], None]


class Log(Protocol):
    """What is needed of a task's logger."""

    def info(self, event: str, /) -> Any: ...

    def warning(self, event: str, /) -> Any: ...

    def exception(self, event: str, /) -> Any: ...


def ranks_to_log(log_ranks: str | int | Iterable[int | str]) -> frozenset[int] | None:
    """The ranks whose lines are wanted; None for all of them, empty for `failed`.

    Args:
        log_ranks: `all`, `failed` (none live: the failing rank's last lines come with the diagnosis), a number,
            numbers separated by commas, or a list of numbers.

    Raises:
        ValueError: none of these.

    >>> sorted(ranks_to_log("0,3")), ranks_to_log("all"), ranks_to_log("failed")
    ([0, 3], None, frozenset())
    """
    if log_ranks == "all":
        return None
    if log_ranks == "failed":
        return frozenset()
    words: Iterable[int | str] = str(log_ranks).split(",") if isinstance(log_ranks, (str, int)) else log_ranks
    numbers = [str(word).strip() for word in words]
    if not numbers or not all(number.isdigit() for number in numbers):
        raise ValueError(f"log_ranks: {log_ranks!r} is not known; use all, failed, a rank, or a list of ranks")
    return frozenset(int(number) for number in numbers)


def find_callbacks(paths: str | Sequence[str] | None) -> tuple[StatusCallback, ...]:
    """The functions behind dotted paths such as `my_package.hooks.on_change`.

    Raises:
        BadInputError: there is no such function.
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
    """A run's listener that writes to a task log.

    Args:
        log: the task's logger.
        ranks: ranks whose lines are written; None for all. Lines of no rank (launchers, roles) are written
            unless `ranks` is empty.
        callbacks: called with `RunStatus.to_dict()` at every change.
        told: what another process has written of the run already, as its `told` says.
        written: what it has written after that, and is written no second time.
    """

    def __init__(
        self,
        log: Log,
        ranks: frozenset[int] | None = None,
        callbacks: tuple[StatusCallback, ...] = (),
        told: Mapping[str, Any] | None = None,
        written: Iterable[str] = (),
    ) -> None:
        self._log = log
        self._ranks = ranks
        self._callbacks = callbacks
        before, self._written = told or {}, Written(written)
        self._phase = self._written.phase or str(before.get("phase", ""))
        self._notes: set[str] = set(before.get("notes", ()))
        self._progress: Progress | None = _progress_of(before.get("progress"))
        self._progress_at = float("-inf")

    @property
    def told(self) -> dict[str, Any]:
        """What was written, so that whoever goes on does not write it again; plain data."""
        progress = None if self._progress is None else asdict(self._progress)
        return {"phase": self._phase, "notes": sorted(self._notes), "progress": progress}

    @property
    def progress(self) -> Progress | None:
        """What was written last of how far the training is."""
        return self._progress

    def on_line(self, line: LogLine) -> None:
        """A line was printed."""
        if self._wanted(line.source):
            self._once(f"[{line.source}] {line.text}")

    def on_status(self, status: RunStatus) -> None:
        """Something about the run changed."""
        for note in status.notes:
            self.note(note)
        self._show_progress(status)
        if (phase := phase_text(status)) != self._phase:
            self._phase = phase
            self._log.info(phase)
        for callback in self._callbacks:
            self.call(callback, status)

    def note(self, note: str) -> None:
        """Something is to be said about the run, once."""
        if note not in self._notes:
            self._notes.add(note)
            if note not in self._written.notes:
                self._log.warning(note)

    def call(self, callback: StatusCallback, status: RunStatus) -> None:
        """Calls a callback; one that fails is shown and passed over."""
        try:
            callback(status.to_dict())
        except Exception:  # noqa: BLE001 - the caller's code: a training is not stopped for it, but it is shown
            self._log.exception(f"callback {getattr(callback, '__qualname__', callback)} failed; the run goes on")

    def _wanted(self, source: str) -> bool:
        if self._ranks is None:
            return True
        word, _, number = source.partition(" ")
        if word == "rank" and number.isdigit():
            return int(number) in self._ranks
        return bool(self._ranks)

    def _show_progress(self, status: RunStatus) -> None:
        now = time.monotonic()
        due = status.phase.final or now - self._progress_at >= PROGRESS_EVERY
        if status.progress is None or status.progress == self._progress or not due:
            return
        self._progress, self._progress_at = status.progress, now
        self._once(progress_text(status.progress))

    def _once(self, text: str) -> None:
        if not self._written.has(text):
            self._log.info(text)


class Listeners:
    """Several listeners of a run as one.

    Args:
        listeners: told of everything, in this order.
    """

    def __init__(self, *listeners: RunListener) -> None:
        self._listeners = listeners

    def on_line(self, line: LogLine) -> None:
        """A line was printed."""
        for listener in self._listeners:
            listener.on_line(line)

    def on_status(self, status: RunStatus) -> None:
        """Something about the run changed."""
        for listener in self._listeners:
            listener.on_status(status)


def _progress_of(told: Mapping[str, Any] | None) -> Progress | None:
    from stepset.watch.state import Progress

    return None if told is None else Progress(**told)


def phase_text(status: RunStatus) -> str:
    """One line on where a run is."""
    reason = f" ({status.reason})" if status.reason else ""
    size = f", {status.world_size} ranks" if status.world_size else ""
    again = f", restart {status.attempt}" if status.attempt else ""
    return f"run {status.name}: {status.phase.value}{reason}{size}{again}"


def progress_text(progress: Progress) -> str:
    """One line on how far the training is, such as `progress: 40 %, step 12, loss=0.31`."""
    parts = [
        f"{progress.progress:.0%}".replace("%", " %") if progress.progress is not None else "",
        f"step {progress.step}" if progress.step is not None else "",
        *(f"{name}={value:.4g}" for name, value in progress.metrics.items()),
    ]
    return "progress: " + ", ".join(part for part in parts if part)
