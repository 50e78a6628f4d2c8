"""Runs jobs as processes on this machine, with the plan and the agent of a cluster run (docs/design/local.md)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from stepset.backends.base import LogSelection, RunListener, RunRequest, TimedRow
from stepset.backends.local.leftovers import end_processes_of
from stepset.backends.local.logs.files import copy_lines, read_lines
from stepset.backends.local.logs.selection import select_rows
from stepset.backends.local.runs.run_dir import RecordedJob
from stepset.backends.local.runs.settings import home_directory
from stepset.backends.local.runs.store import RunStore
from stepset.backends.option_names import Interface
from stepset.backends.prune import PruneRule
from stepset.run_status import LogLine, Phase, RunStatus

if TYPE_CHECKING:
    from stepset.backends.local.launch import LocalHandle
    from stepset.watch.live_lines import LiveLine
    from stepset.watch.stacks.model import RunStacks

_POLL = 0.1
_SHOW_EVERY = 0.5
"""The number of seconds between two calls of the argument `show` of `LocalBackend.wait`."""


class LocalBackend:
    """Runs jobs as processes on this machine. `stepset.backends.base.Backend` documents the methods.

    Args:
        home: the directory that contains the run directories. Default: $STEPSET_HOME. If this variable is not set, the
            default is a directory in the user's state directory.
        grace: the number of seconds between SIGTERM and SIGKILL when a rank is stopped. Default: as the job's field
            `termination_grace_period` determines.
        interface: the interface of the caller, which determines the names of commands in error messages.
    """

    def __init__(self, home: Path | None = None, grace: float | None = None, interface: Interface = "cli") -> None:
        self._store = RunStore(home if home is not None else home_directory(os.environ), interface)
        self._grace = grace

    def start(self, request: RunRequest, listener: RunListener | None = None) -> LocalHandle:
        from stepset.backends.local.launch import start_run

        return start_run(self._store, self._grace, request, listener)

    def submit(self, request: RunRequest) -> RunStatus:
        from stepset.backends.local.detached import start_detached

        return self._store.find(start_detached(self._store, self._grace, replace(request, stdin=None))).read()

    def status(self, name: str) -> RunStatus:
        run = self._store.find(name)
        return run.with_details(run.read())

    def state(self, name: str) -> RunStatus:
        """Returns the current status of a run without the details that only `status` reads, such as the points."""
        return self._store.find(name).read()

    def blocks(
        self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> Iterator[list[LogLine]]:
        """Yields the lines of `logs` in blocks. While the run prints nothing, the blocks are empty."""
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
        """Returns the job of a run. Raises InfrastructureError if the job cannot be read."""
        return self._store.find(name).recorded_job()

    def disk_usage(self, name: str) -> int:
        """Returns the number of bytes that the files of a run occupy on the disk."""
        return self._store.find(name).disk_usage()

    def timed_rows(self, name: str, selection: LogSelection) -> Iterator[Sequence[TimedRow]]:
        return select_rows(self._store.find(name), selection)

    def missing_logs(self, name: str, sources: frozenset[str] | None) -> str:
        return ""  # the logs of a local run are deleted only with the run

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]:
        return (line for block in self.blocks(name, follow=follow, sources=sources) for line in block)

    def live_lines(self, name: str, sources: frozenset[str] | None) -> Iterator[Sequence[LiveLine]]:
        from stepset.backends.local.logs.open_lines import live_blocks

        return live_blocks(self._store.find(name), sources)

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        copy_lines(self._store.find(name), out, follow=follow, sources=sources)

    def exec(self, name: str, source: str, command: Sequence[str]) -> int:
        from stepset.backends.local.exec import exec_beside_rank

        return exec_beside_rank(self._store.find(name), source, command)

    def stacks(self, name: str, sources: frozenset[str] | None = None) -> RunStacks:
        from stepset.backends.local.runs.rank_stacks import local_stacks

        return local_stacks(self._store.find(name), sources)

    def wait(
        self, name: str, timeout: float | None = None, show: Callable[[RunStatus], None] | None = None
    ) -> RunStatus:
        run, show_at = self._store.find(name), 0.0
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            status = run.read()
            if status.phase.final or (until is not None and time.monotonic() >= until):
                return run.with_details(status)
            if show is not None and time.monotonic() >= show_at:
                show(run.with_details(status))
                show_at = time.monotonic() + _SHOW_EVERY
            time.sleep(_POLL if until is None else min(_POLL, max(0.0, until - time.monotonic())))

    def cancel(self, name: str) -> RunStatus:
        """Asks a run to stop. If the run is Lost, kills its remaining processes."""
        run = self._store.find(name)
        status = run.read()
        if status.phase is Phase.LOST:
            end_processes_of(run.path)
        elif not status.phase.final:
            run.request_cancel()
        return run.with_details(status)
