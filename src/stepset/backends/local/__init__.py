"""Runs jobs as processes on this machine, with the same plan and agent as on a cluster (docs/design/local.md)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from stepset.backends.base import LogSelection, RunListener, RunRequest, TimedRow
from stepset.backends.local.leftovers import end_processes_of
from stepset.backends.local.logs.files import copy_lines, read_lines
from stepset.backends.local.logs.selection import select_rows
from stepset.backends.local.store import RecordedJob, RunStore, home_directory
from stepset.backends.prune import PruneRule
from stepset.run_status import LogLine, Phase, RunStatus

if TYPE_CHECKING:
    from stepset.backends.local.launch import LocalHandle

_POLL = 0.1
GRACE = 10.0


class LocalBackend:
    """Runs jobs as processes on this machine; `stepset.backends.base.Backend` documents the methods.

    Run directories are in `home`; default: $STEPSET_HOME, else the user's state directory. A rank that is stopped has
    `grace` seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, home: Path | None = None, grace: float = GRACE) -> None:
        self._store = RunStore(home if home is not None else home_directory(os.environ))
        self._grace = grace

    def start(self, request: RunRequest, listener: RunListener | None = None) -> LocalHandle:
        from stepset.backends.local.launch import start_run

        return start_run(self._store, self._grace, request, listener)

    def submit(self, request: RunRequest) -> RunStatus:
        from stepset.backends.local.detached import start_detached

        return self._store.find(start_detached(self._store, self._grace, replace(request, stdin=None))).read()

    def status(self, name: str) -> RunStatus:
        return self._store.find(name).read()

    def blocks(
        self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> Iterator[list[LogLine]]:
        """Yields the lines of `logs` in blocks; yields empty blocks while the run prints nothing."""
        return read_lines(self._store.find(name), follow=follow, sources=sources)

    @property
    def place(self) -> str:
        return str(self._store.runs)

    def list(self, *, all_namespaces: bool = False) -> list[RunStatus]:
        """Returns all runs, the newest first."""
        return self._store.list()

    def prune(self, rule: PruneRule, *, dry_run: bool = False) -> Sequence[RunStatus]:
        return self._store.prune(rule, time.time(), dry_run=dry_run)

    def delete(self, names: Sequence[str], *, dry_run: bool = False) -> Sequence[RunStatus]:
        return self._store.delete(names, dry_run=dry_run)

    def recorded_job(self, name: str) -> RecordedJob:
        """Returns the job of a run; raises InfrastructureError if it cannot be read."""
        return self._store.find(name).recorded_job()

    def disk_usage(self, name: str) -> int:
        """Returns the bytes on the disk that the files of a run take."""
        return self._store.find(name).disk_usage()

    def timed_rows(self, name: str, selection: LogSelection) -> Iterator[Sequence[TimedRow]]:
        return select_rows(self._store.find(name), selection)

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]:
        return (line for block in self.blocks(name, follow=follow, sources=sources) for line in block)

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        copy_lines(self._store.find(name), out, follow=follow, sources=sources)

    def wait(self, name: str, timeout: float | None = None) -> RunStatus:
        run = self._store.find(name)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            status = run.read()
            if status.phase.final or (until is not None and time.monotonic() >= until):
                return status
            time.sleep(_POLL if until is None else min(_POLL, max(0.0, until - time.monotonic())))

    def cancel(self, name: str) -> RunStatus:
        """Requests a run's end; kills the remaining processes of a run that is Lost."""
        run = self._store.find(name)
        status = run.read()
        if status.phase is Phase.LOST:
            end_processes_of(run.path)
        elif not status.phase.final:
            run.request_cancel()
        return status
