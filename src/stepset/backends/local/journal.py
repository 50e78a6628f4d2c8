"""Where everything that happens in a run is put down: logs, status, and the listener's ear.

Used by the gang while it runs and by the supervisor between attempts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from stepset.backends.base import RunListener
from stepset.backends.local.layout import PodSpec
from stepset.backends.local.logs import Recorder
from stepset.backends.local.processes import ProcessId
from stepset.backends.local.store import RunDir
from stepset.backends.local.tracker import Tracker
from stepset.watch.lines import Batch, Joiner, log_lines
from stepset.watch.state import Failure, Phase, RunStatus

_STATE_EVERY = 0.2
"""Seconds between two writings of the state while only lines and progress come."""
_SHARE = 0.05
"""Part of the time that writing the state may take, when there are very many ranks."""


class Journal:
    """Puts down what happens in a run.

    Args:
        run: its directory.
        tracker: its status.
        listener: who else is told.

    Attributes:
        listener_error: what the listener raised; it is not called again, and the run is to be stopped.
    """

    def __init__(self, run: RunDir, tracker: Tracker, listener: RunListener | None) -> None:
        self._run = run
        self._tracker = tracker
        self._listener = listener
        self._recorder = Recorder(run)
        self._joiner = Joiner()
        self._result: Any = None
        self._unwritten = True
        self._next_write = 0.0
        self._processes: dict[str, ProcessId] = {}
        self._processes_unwritten = False
        self.listener_error: BaseException | None = None

    @property
    def broken(self) -> OSError | None:
        """Why the logs can no longer be written, or None."""
        return self._recorder.broken

    @property
    def result(self) -> Any:
        """What the last attempt's rank 0 reported as its result."""
        return self._result

    def tail(self, source: str) -> tuple[str, ...]:
        """The last lines of a source."""
        return self._recorder.tail(source)

    def begin(self, specs: Sequence[PodSpec], attempt: int) -> None:
        """An attempt begins."""
        self._recorder.forget()
        self._result = None
        self._tracker.begin(specs, attempt)
        self.publish()

    def pod_started(self, spec: PodSpec, pid: int) -> None:
        """A pod's agent was started.

        Args:
            spec: the pod.
            pid: of the agent.
        """
        self._note_process(spec.name, pid)
        self._tracker.pod_started(spec, time.time())

    def pod_ended(self, spec: PodSpec, exit_code: int, stopped: bool) -> None:
        """A pod's agent has ended."""
        self._tracker.pod_ended(spec, exit_code, stopped)

    def batch(self, spec: PodSpec, batch: Batch, stopped: bool) -> None:
        """A pod printed something."""
        if batch.raw:
            self._recorder.write(batch)
            self._unwritten = True
        if batch.lines and self._listener is not None:
            self._tell_lines(batch)
        for said in batch.progress:
            self._tracker.progress(said)
        for event in batch.events:
            if event["event"] == "result":
                self._result = event.get("result")
            if event["event"] == "started":
                self._note_process(f"rank {event.get('rank')}", event.get("pid"))
            self._tracker.event(spec, event, stopped)

    def _note_process(self, name: str, pid: object) -> None:
        """Keeps which process a pod's agent or a rank is; one that is not seen here is told by its agent's alone."""
        process = ProcessId.of(pid)
        if process is None:
            self._processes.pop(name, None)
        else:
            self._processes[name] = process
        self._processes_unwritten = True

    def _tell_lines(self, batch: Batch) -> None:
        try:
            for line in log_lines(self._joiner.join(batch.lines)):
                if self._listener is not None:
                    self._listener.on_line(line)
        except BaseException as error:  # noqa: BLE001  # the listener's own; raised again where the run is waited for
            self._give_up_listener(error)

    def set(self, **changes: Any) -> None:
        """Changes fields of the status, and makes it known at once."""
        self._tracker.set(**changes)
        self.publish()

    def attempt_over(self, failure: Failure | None) -> None:
        """An attempt has ended."""
        self._tracker.end(failure)

    def tick(self) -> None:
        """Makes known what changed, but not so often that it costs."""
        if self._tracker.changed:
            self._tell_status()
            self._unwritten = True
        now = time.monotonic()
        if self._unwritten and now >= self._next_write:
            self._write(self.status())
            self._next_write = time.monotonic() + max(_STATE_EVERY, (time.monotonic() - now) / _SHARE)

    def publish(self) -> RunStatus:
        """Makes the status known now, to the listener and on disk."""
        self._tell_status()
        status = self.status()
        self._write(status)
        return status

    def _write(self, status: RunStatus) -> None:
        self._unwritten = False
        if self._processes_unwritten:
            with suppress(OSError):  # a full disk: the state cannot be written either, and says so
                self._run.write_processes(self._processes)
                self._processes_unwritten = False
        try:
            self._run.write(status)
        except OSError as error:
            if self._recorder.broken is None:
                self._recorder.broken = error

    def _tell_status(self) -> None:
        self._tracker.changed = False
        if self._listener is None:
            return
        try:
            self._listener.on_status(self.status())
        except BaseException as error:  # noqa: BLE001  # see above
            self._give_up_listener(error)

    def _give_up_listener(self, error: BaseException) -> None:
        self._listener = None
        self.listener_error = error

    def status(self) -> RunStatus:
        """The status now."""
        return self._tracker.status(self._last_line)

    def _last_line(self, source: str) -> str:
        tail = self._recorder.tail(source)
        return tail[-1] if tail else ""

    @property
    def phase(self) -> Phase:
        """Where the run is."""
        return self._tracker.phase

    def close(self) -> None:
        """Closes the logs."""
        self._recorder.close()
