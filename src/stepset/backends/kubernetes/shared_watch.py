"""Many runs of one namespace followed with one set of watches, however many they are.

For whoever waits for hundreds of runs in one process: a follower for each (follow.py) would have its own connections
and threads. Airflow's triggerer does the same in its event loop, with the same router and feeds. No logs are read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from queue import Empty, Queue

from stepset.backends.kubernetes.scope import of_all_runs
from stepset.backends.kubernetes.site import EVENTS, QUEUE_WORKLOADS, WORKLOADS, Site
from stepset.backends.kubernetes.watcher import Collection, Watcher
from stepset.errors import StepsetError
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.lean import lean
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.router import Router
from stepset.watch.cluster.status import status_of
from stepset.watch.state import RunStatus

_WAITING = 256
_BREATH = 0.02
_ENDING = 5.0


class NamespaceWatch:
    """Hears of all runs in a namespace, from `with` to its end. All of it is for one thread.

    Args:
        site: where.
        targets: what the runs may have become.
    """

    def __init__(self, site: Site, targets: Sequence[str] = ("jobset",)) -> None:
        self._site, self._targets = site, tuple(targets)
        self._router = Router()
        self._inbox: Queue[tuple[int, list[Change]] | StepsetError] = Queue(_WAITING)
        self._listed: set[int] = set()
        self._watchers = [
            Watcher(site.connection, collection, partial(self._changed, number), self._inbox.put)
            for number, collection in enumerate(_collections(site, self._targets))
        ]

    def __enter__(self) -> NamespaceWatch:
        for watcher in self._watchers:
            watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        for watcher in self._watchers:
            watcher.stop()
        until = time.monotonic() + _ENDING
        while any(watcher.alive for watcher in self._watchers) and time.monotonic() < until:
            self._next(_BREATH)  # whoever waits for room in the queue must be able to end

    @property
    def complete(self) -> bool:
        """Whether everything has been listed once; before that nothing can be said of any run."""
        return len(self._listed) == len(self._watchers)

    @property
    def runs(self) -> list[str]:
        """The names of the runs that are there or kept."""
        return self._router.runs

    def silent_for(self) -> float:
        """Seconds for which the server has not answered; 0 while it does."""
        return max(watcher.silent_for() for watcher in self._watchers)

    def keep(self, run: str, uid: str) -> None:
        """Keeps a run, so that its end is told also when it is gone by then.

        Args:
            run: its name.
            uid: its workload's.

        Raises:
            InfrastructureError: the server cannot be asked about a run that was not heard of yet.
        """
        if self._router.keep(run, uid):
            return
        there = [self._site.connection.get(self._site.one(WORKLOADS[target], run)) for target in self._targets]
        objects = self._router.objects(run)
        if objects is not None and not any(reply.accepted and reply.body["metadata"]["uid"] == uid for reply in there):
            objects.not_found()

    def forget(self, run: str) -> None:
        """Lets go of a run that was kept."""
        self._router.forget(run)

    def take(self, wait: float) -> set[str]:
        """Takes in what has come, after waiting for the first of it.

        Args:
            wait: seconds.

        Returns:
            The names of the runs that changed.

        Raises:
            InfrastructureError: a collection cannot be followed any more.
        """
        changed: set[str] = set()
        for count in range(_WAITING):
            news = self._next(0 if count else wait)
            if news is None:
                break
            if isinstance(news, StepsetError):
                raise news
            number, changes = news
            self._listed.add(number)
            changed |= self._router.see(changes)
        return changed

    def status(self, run: str, now: float) -> RunStatus | None:
        """Where a run is; None for one that is not there and was not kept.

        Args:
            run: its name.
            now: seconds since the epoch.
        """
        objects = self._router.objects(run)
        return None if objects is None else status_of(objects, Reports(), now)

    def _changed(self, number: int, changes: list[Change]) -> None:
        self._inbox.put((number, changes))

    def _next(self, wait: float) -> tuple[int, list[Change]] | StepsetError | None:
        try:
            return self._inbox.get(timeout=wait) if wait else self._inbox.get_nowait()
        except Empty:
            return None


def _collections(site: Site, targets: Sequence[str]) -> list[Collection]:
    """Everything that says something about the runs of a namespace, each collection once."""
    found: dict[tuple[str, str], Collection] = {}
    every = [collection for target in targets for collection in of_all_runs(site, WORKLOADS[target])]
    every.append(Collection(site.all(EVENTS), {"fieldSelector": "type=Warning"}, needed=False))
    every.append(Collection(site.all(QUEUE_WORKLOADS), needed=False))
    for each in every:
        found.setdefault((each.path, str(sorted(each.selectors.items()))), replace(each, trim=lean))
    return list(found.values())
