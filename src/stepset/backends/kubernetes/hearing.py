"""All that is heard of one run: its collections followed, its pods' logs read, brought into one thread.

Used by whoever follows a run (follow.py) or its logs alone (log_follow.py). Watchers and log readers have threads of
their own and put what they hear into one bounded queue; whoever calls `take` empties it. So all that is known of the
run is touched by one thread, and one that is slow slows the readers down instead of filling memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from queue import Empty
from typing import Any

from stepset.backends.kubernetes.client import RefusedError
from stepset.backends.kubernetes.inbox import Inbox
from stepset.backends.kubernetes.pulse import Pulse
from stepset.backends.kubernetes.refusals import may_not, missing_right, unseen
from stepset.backends.kubernetes.run_logs import RunLogs
from stepset.backends.kubernetes.scope import of_run
from stepset.backends.kubernetes.site import Site
from stepset.backends.kubernetes.watcher import Watcher
from stepset.errors import StepsetError
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.keeper import Leaving
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.workload import read_workload
from stepset.watch.lines import Batch
from stepset.watch.state import RunStatus

LOG_PATIENCE = 15.0
"""Seconds that the last lines may take after a run is over."""

_WAITING = 16 * 1024 * 1024
"""Bytes of memory that may wait to be taken, about."""
_TURN = 256
"""What is taken in at once."""
_OBJECT = 16 * 1024
"""Bytes of one object, about."""
_ENDING = 5.0
_BREATH = 0.02

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Changed:
    """What a watcher heard."""

    watcher: int
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class Printed:
    """What a pod printed.

    Args:
        pod: its uid.
        batch: the lines.
    """

    pod: str
    batch: Batch


class Hearing:
    """Hears all there is of one run, from `with` to its end.

    Args:
        site: where it is.
        workload: its object on top, as it was made or read.
        sources: only pods that may hold lines of these are read; None: all; empty: none.
    """

    def __init__(self, site: Site, workload: Manifest, sources: frozenset[str] | None = None) -> None:
        self._workload, self._namespace = workload, site.namespace
        self._objects = RunObjects(uid=str(workload["metadata"]["uid"]))
        self._reports = Reports()
        self._leaving = Leaving()
        self._inbox: Inbox[_Changed | Printed | StepsetError] = Inbox(_WAITING, _weight)
        self._listed: set[int] = set()
        known = read_workload(workload)
        ranks = known.ranks if known else None
        self._logs = RunLogs(site.connection, site.namespace, self._printed, sources=sources, ranks=ranks)
        self._watchers = [
            Watcher(site.connection, collection, partial(self._changed, number), self._failed)
            for number, collection in enumerate(of_run(site, workload))
        ]
        self._pulse = Pulse(site, workload, self._watchers, self._reconnect)

    def __enter__(self) -> Hearing:
        for watcher in self._watchers:
            watcher.start()
        self._pulse.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pulse.stop()
        for watcher in self._watchers:
            watcher.stop()
        self._logs.close()
        # Whoever waits for room in the queue must be able to end.
        until = time.monotonic() + _ENDING
        while (self._logs.alive or any(watcher.alive for watcher in self._watchers)) and time.monotonic() < until:
            self._next(_BREATH)

    @property
    def complete(self) -> bool:
        """Whether everything has been listed once; before that nothing can be said of the run."""
        return len(self._listed) == len(self._watchers)

    @property
    def objects(self) -> RunObjects:
        """The run's objects as last seen."""
        return self._objects

    @property
    def unseen(self) -> tuple[str, ...]:
        """What may not be seen and is done without, each in one line."""
        refused = (watcher.refused for watcher in self._watchers)
        notes = (unseen(reply, self._namespace) for reply in refused if reply is not None)
        return tuple(note for note in notes if note)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why some logs could not be read to their end, each in one line."""
        return self._logs.problems

    def silent_for(self) -> float:
        """Seconds for which the server has not answered; 0 while it does."""
        return max(self._pulse.silent_for(), *(watcher.silent_for() for watcher in self._watchers))

    def status(self, now: float) -> RunStatus:
        """Where the run is, by what was taken in.

        Args:
            now: seconds since the epoch.
        """
        return status_of(self._objects, self._reports, now)

    def leaving(self, now: float) -> bool:
        """Whether the run was deleted and its pods still have the time that they are given, in which they may print.

        Args:
            now: seconds since the epoch.
        """
        return self._leaving(self._objects, now)

    def take(self, wait: float) -> Iterator[Printed]:
        """Takes in what has come, after waiting for the first of it; gives what pods printed.

        Args:
            wait: seconds.

        Raises:
            InfrastructureError: a collection cannot be followed any more.
        """
        for count in range(_TURN):
            news = self._next(0 if count else wait)
            if news is None:
                return
            if isinstance(news, StepsetError):
                raise news
            if isinstance(news, Printed):
                self._reports.see(news.pod, news.batch)
                yield news
            else:
                self._see(news)

    def rest(self) -> Iterator[Printed]:
        """The last lines of a run that is over, for which there is a limit of patience."""
        reader = threading.Thread(target=self._logs.finish, args=(LOG_PATIENCE,), daemon=True)
        reader.start()
        while reader.is_alive() or not self._inbox.empty():
            yield from self.take(_BREATH)

    def _reconnect(self) -> None:
        for watcher in self._watchers:
            watcher.reconnect()
        self._logs.reconnect()

    def _see(self, news: _Changed) -> None:
        changes = news.changes
        if news.watcher not in self._listed:
            self._listed.add(news.watcher)
            uid = self._workload["metadata"]["uid"]
            if news.watcher == 0 and all(change.object["metadata"]["uid"] != uid for change in changes):
                # Deleted between its reading and its following.
                changes = [Change("DELETED", self._workload, witnessed=False)]
        for change in changes:
            self._objects.see(change)
            if change.object.get("kind") == "Pod":
                self._logs.pod(change.object, change.verb == "DELETED", change.witnessed)
        self._reports.tidy(self._objects)

    def _next(self, wait: float) -> _Changed | Printed | StepsetError | None:
        try:
            return self._inbox.get(timeout=wait) if wait else self._inbox.get_nowait()
        except Empty:
            return None

    def _printed(self, pod: str, batch: Batch) -> None:
        self._inbox.put(Printed(pod, batch))

    def _failed(self, error: StepsetError) -> None:
        if isinstance(error, RefusedError) and may_not(error.reply):
            error = missing_right(error.reply, self._namespace)
        self._inbox.put(error)

    def _changed(self, watcher: int, changes: list[Change]) -> None:
        self._inbox.put(_Changed(watcher, changes))


def _weight(news: _Changed | Printed | StepsetError) -> int:
    """Bytes of memory it takes, about."""
    if isinstance(news, Printed):
        return news.batch.weight
    return _OBJECT * (1 + len(news.changes)) if isinstance(news, _Changed) else _OBJECT
