"""Records a run: writes logs and status to disk, and calls the listener."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from stepset.backends.base import OpenLineListener, RunListener
from stepset.backends.local.layout import PodSpec
from stepset.backends.local.logs.files import Recorder
from stepset.backends.local.processes import ProcessId
from stepset.backends.local.store import RunDir
from stepset.backends.local.tracker import Tracker
from stepset.run_status import Failure, LogLine, RunStatus
from stepset.watch.lines import Batch, OpenLine
from stepset.watch.run_lines import RunLines

T = TypeVar("T")

_STATE_EVERY = 0.2
"""Seconds between two writes of the state while only lines and progress arrive."""
_SHARE = 0.05
"""The largest share of the time that writing the state may take; a limit for very many ranks."""


class Journal:
    """Records a run. Once `listener_error` is set, the listener is not called any more, and the run must stop."""

    def __init__(self, run: RunDir, tracker: Tracker, listener: RunListener | None) -> None:
        self._run = run
        self._tracker = tracker
        self._listener = listener
        self._recorder = Recorder(run)
        self._lines = RunLines()
        self._result: Any = None
        self._unwritten = True
        self._next_write = 0.0
        self._processes: dict[str, ProcessId] = {}
        self._processes_unwritten = False
        self.listener_error: BaseException | None = None

    @property
    def broken(self) -> OSError | None:
        """The error after which the logs can no longer be written, or None."""
        return self._recorder.broken

    @property
    def result(self) -> Any:
        """The result that rank 0 of the last attempt reported."""
        return self._result

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the run so far."""
        return self._tracker.notes

    def tail(self, source: str) -> tuple[str, ...]:
        return self._recorder.tail(source)

    def begin(self, specs: Sequence[PodSpec], attempt: int) -> None:
        self._recorder.begin_attempt()
        self._result = None
        self._tracker.begin(specs, attempt)
        self.publish()

    def pod_started(self, spec: PodSpec, pid: int) -> None:
        self._note_process(spec.name, pid)
        self._tracker.pod_started(spec, time.time())

    def pod_ended(self, spec: PodSpec, exit_code: int, stopped: bool) -> None:
        self._tracker.pod_ended(spec, exit_code, stopped)

    def batch(self, spec: PodSpec, batch: Batch, stopped: bool) -> None:
        """Records the output of a pod."""
        self._recorder.see(batch.events)
        if batch.raw:
            self._recorder.write(batch)
            self._unwritten = True
        if self._listener is not None:
            self._deliver(self._lines.feed(spec.name, batch, time.monotonic()))
        for progress in batch.progress:
            self._tracker.progress(progress)
        for event in batch.events:
            if event["event"] == "result":
                self._result = event.get("result")
            if event["event"] == "started":
                self._note_process(f"rank {event.get('rank')}", event.get("pid"))
            self._tracker.event(spec, event, stopped)

    def _deliver(self, lines: Iterable[LogLine | OpenLine]) -> None:
        """Passes lines to the listener, and states of incomplete lines if it accepts them."""
        if (listener := self._listener) is None:
            return
        for line in lines:
            if isinstance(line, LogLine):
                self._notify(listener.on_line, line)
            elif isinstance(listener, OpenLineListener):
                self._notify(listener.on_open_line, line)

    def _note_process(self, name: str, pid: object) -> None:
        """Records the process of a pod's agent or of a rank; drops a pid that is not visible here."""
        process = ProcessId.of(pid)
        if process is None:
            self._processes.pop(name, None)
        else:
            self._processes[name] = process
        self._processes_unwritten = True

    def _notify(self, method: Callable[[T], None], argument: T) -> None:
        """Calls a method of the listener, unless a method has raised before."""
        if self.listener_error is None:
            try:
                method(argument)
            except BaseException as error:  # noqa: BLE001  # the listener's own; `LocalHandle.wait` raises it again
                self.listener_error = error

    def set(self, **changes: Any) -> None:
        """Changes fields of the status, and publishes it."""
        self._tracker.set(**changes)
        self.publish()

    def attempt_over(self, failure: Failure | None) -> None:
        self._deliver(self._lines.end_attempt())
        self._tracker.end(failure)

    def tick(self) -> None:
        """Publishes changes at a limited rate."""
        now = time.monotonic()
        self._deliver(self._lines.due(now))
        if self._tracker.changed:
            self._notify_status()
            self._unwritten = True
        if self._unwritten and now >= self._next_write:
            self._write(self.status())
            self._next_write = time.monotonic() + max(_STATE_EVERY, (time.monotonic() - now) / _SHARE)

    def publish(self) -> RunStatus:
        """Passes the status to the listener and writes it to disk."""
        self._notify_status()
        status = self.status()
        self._write(status)
        return status

    def _write(self, status: RunStatus) -> None:
        self._unwritten = False
        if self._processes_unwritten:
            with suppress(OSError):  # a full disk: writing the state fails, too, and reports it
                self._run.write_processes(self._processes)
                self._processes_unwritten = False
        try:
            self._run.write(status)
        except OSError as error:
            if self._recorder.broken is None:
                self._recorder.broken = error

    def _notify_status(self) -> None:
        self._tracker.changed = False
        if self._listener is not None:
            self._notify(self._listener.on_status, self.status())

    def status(self) -> RunStatus:
        return self._tracker.status(self._recorder.last_line)

    def close(self) -> None:
        self._recorder.close()
