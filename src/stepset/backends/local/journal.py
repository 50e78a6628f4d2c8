"""Records a run: writes the logs and the status to the disk, and calls the listener."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from stepset.backends.base import RunListener, pass_line
from stepset.backends.local.layout import PodSpec
from stepset.backends.local.logs.files import Recorder
from stepset.backends.local.logs.open_lines import OpenLinesFile
from stepset.backends.local.processes import ProcessId
from stepset.backends.local.runs.run_dir import RunDir
from stepset.backends.local.tracker import Tracker
from stepset.run_status import LogLine, Progress, ProgressPoint, RunStatus
from stepset.watch.lines import Batch, OpenLine
from stepset.watch.present.presenter import PROGRESS_EVERY
from stepset.watch.run_lines import RunLines
from stepset.watch.state.rules import Decision

T = TypeVar("T")

_STATE_EVERY = 0.2
"""The number of seconds between two writes of the state while only lines and progress arrive."""
_CHECK_EVERY = 2.0
"""The number of seconds between two signs of life, and between two searches for ranks that printed a traceback and did
not exit."""
_SHARE = 0.05
"""The maximum fraction of the time that may be used to write the state. Only runs with very many ranks reach this
limit."""


class Journal:
    """Records a run.

    When a method of the listener raises an error, the error is stored in `listener_error`. The listener is not called
    again, and the run must stop. The attribute `tracker` is the status of the run.
    """

    def __init__(self, run: RunDir, tracker: Tracker, listener: RunListener | None) -> None:
        self._run = run
        self.tracker = tracker
        self._listener = listener
        self._recorder = Recorder(run)
        self._lines = RunLines()
        self._open_lines = OpenLinesFile(run)
        self._unwritten = True
        self._next_write = self._next_open = self._next_check = 0.0
        self._progress: Progress | None = None  # in the status that the listener received last
        self._repeat_at = math.inf  # the monotonic time at which the listener receives the status again
        self._processes: dict[str, ProcessId] = {}
        self._processes_unwritten = False
        self._points: tuple[ProgressPoint, ...] = ()  # the points that were written last
        self.listener_error: BaseException | None = None

    @property
    def broken(self) -> OSError | None:
        """The error after which the logs can no longer be written, or None."""
        return self._recorder.broken

    @property
    def listener_requests(self) -> list[str]:
        """The reason to stop the run if the listener has raised an error, or an empty list."""
        return [] if self.listener_error is None else [f"its listener raised {self.listener_error!r}"]

    def begin(self, specs: Sequence[PodSpec], attempt: int) -> None:
        """Begins an attempt. `attempt` is the number of restarts of this run before this attempt."""
        self._recorder.begin_attempt()
        self.tracker.begin(specs, attempt)
        self._publish()

    def pod_started(self, spec: PodSpec, pid: int) -> None:
        self._note_process(spec.name, pid)
        self.tracker.pod_started(spec, time.time())

    def batch(self, spec: PodSpec, batch: Batch, stopped_at: float | None) -> None:
        """Records the output of a pod."""
        batch.at = time.time()
        self._open_lines.see(batch)
        self._recorder.write(batch)
        self._unwritten |= bool(batch.raw or batch.between)
        if self._listener is not None:
            self._deliver(self._lines.feed(spec.name, batch, time.monotonic()))
        for event in batch.events:
            if event["event"] == "started":
                self._note_process(f"rank {event.get('rank')}", event.get("pid"))
        self.tracker.output(spec, batch, batch.at, stopped_at)

    def _deliver(self, lines: Iterable[LogLine | OpenLine]) -> None:
        """Passes lines to the listener."""
        for line in lines:
            self._notify(pass_line, line)

    def _note_process(self, name: str, pid: object) -> None:
        """Records the process of a pod's agent or of a rank. A pid that is not visible to this process is dropped."""
        process = ProcessId.of(pid)
        if process is None:
            self._processes.pop(name, None)
        else:
            self._processes[name] = process
        self._processes_unwritten = True

    def _notify(self, call: Callable[[RunListener, T], None], argument: T) -> None:
        """Calls the listener. Does nothing if there is no listener, or if a call has raised an error before."""
        if self._listener is not None and self.listener_error is None:
            try:
                call(self._listener, argument)
            except BaseException as error:  # noqa: BLE001  # `LocalHandle.wait` raises the listener's error
                self.listener_error = error

    def cancelled(self, reason: str) -> None:
        """Records that the run is being stopped because of a request. `reason` may be "".

        The supervisor may be killed before the ranks have exited. Then this record explains the end of the run.
        """
        with suppress(OSError):
            self._run.write_stop_request(reason)
        if reason:
            self.tracker.note(f"the run was asked to stop: {reason}")

    def stop(self) -> None:
        """Records that the run is being stopped although no rank has failed."""
        self._lines.stop()

    def attempt_over(self, decision: Decision) -> None:
        now = time.time()
        self._deliver(self._lines.end_attempt())
        self._open_lines.clear()
        self._open_lines.write()
        self.tracker.end(decision, now)
        self._publish()

    def tick(self) -> None:
        """Publishes changes of the status, and limits the number of writes to the disk."""
        now = time.monotonic()
        self._deliver(self._lines.due(now))
        if now >= self._next_check:
            self._run.touch()
            self.tracker.note_stuck_rank(self.status, time.time())
            self._next_check = now + _CHECK_EVERY
        if self.tracker.changed:
            self._notify_status()
            self._unwritten = True
        elif now >= self._repeat_at:
            self._notify_status()
        if now >= self._next_open:
            self._unwritten |= self._open_lines.write()
            self._next_open = now + _STATE_EVERY
        if self._unwritten and now >= self._next_write:
            self._write(self.status())
            self._next_write = time.monotonic() + max(_STATE_EVERY, (time.monotonic() - now) / _SHARE)

    def _publish(self) -> None:
        """Passes the status to the listener, and writes the status to the disk."""
        self._notify_status()
        self._write(self.status())

    def _write(self, status: RunStatus) -> None:
        self._unwritten = False
        if self._processes_unwritten:
            with suppress(OSError):  # if the disk is full, the write of the state fails as well and reports the error
                self._run.write_processes(self._processes)
                self._processes_unwritten = False
        if status.points != self._points:
            with suppress(OSError):
                self._run.write_points(status.points)
                self._points = status.points
        try:
            self._run.write(status)
        except OSError as error:
            if self._recorder.broken is None:
                self._recorder.broken = error

    def _notify_status(self) -> None:
        self.tracker.changed = False
        if self._listener is not None:
            status = self.status()
            self._notify(lambda listener, status: listener.on_status(status), status)
            # A presenter omits progress that follows other progress immediately, and needs the last status once more.
            new = status.progress != self._progress
            self._progress, self._repeat_at = status.progress, time.monotonic() + PROGRESS_EVERY if new else math.inf

    def status(self) -> RunStatus:
        return self.tracker.status(self._last_line)

    def _last_line(self, source: str) -> tuple[str, float | None]:
        """Returns the last line of a source, and the time of its last output in seconds since the epoch.

        If the last line is incomplete, returns what this line shows, such as a progress bar. If the job has Secrets,
        the incomplete line is not returned, because the agents redact only complete lines.
        """
        text, at = self.tracker.last_line(source)
        shown = "" if self.tracker.has_secrets else self._open_lines.state(source)
        return shown or text, at

    def close(self) -> None:
        self._recorder.close()
