"""A run's logs followed without the run: as they come, until its verdict.

Called by log_reading for `stepset logs --follow`. Nothing is written to the cluster: whoever started the run does that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from queue import Empty, Queue
from typing import Any, TypeAlias

from stepset.backends.kubernetes.run_logs import RunLogs
from stepset.backends.kubernetes.scope import of_run
from stepset.backends.kubernetes.site import Site
from stepset.backends.kubernetes.watcher import Watcher
from stepset.errors import InfrastructureError, StepsetError
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.workload import read_workload
from stepset.watch.lines import Batch

_WAITING = 64
_LOOK = 1.0
"""Seconds after which it is looked whether the run is over although nothing has changed: some ends take only time."""
_LAST_LINES = 15.0
"""Seconds that the last lines may take after a run is over."""
_GIVE_UP = 5.0

Manifest = Mapping[str, Any]

_News: TypeAlias = "tuple[int, list[Change]] | tuple[str, Batch] | StepsetError"


def followed(site: Site, workload: Manifest, sources: frozenset[str] | None) -> Iterator[tuple[str, Batch]]:
    """What a run's pods print, with the pod's uid, until the run is over.

    Args:
        site: where the run is.
        workload: its object on top, as it was read.
        sources: only pods that may hold lines of these are read; None: all.

    Raises:
        InfrastructureError: the server does not let whoever asks look; some of the logs could not be read.
    """
    known = read_workload(workload)
    ranks = known.ranks if known else None
    inbox: Queue[_News] = Queue(_WAITING)

    def printed(pod: str, batch: Batch) -> None:
        inbox.put((pod, batch))

    def changed(watcher: int, changes: list[Change]) -> None:
        inbox.put((watcher, changes))

    logs = RunLogs(site.connection, site.namespace, printed, sources=sources, ranks=ranks)
    watchers = [
        Watcher(site.connection, collection, partial(changed, number), inbox.put)
        for number, collection in enumerate(of_run(site, workload))
    ]
    for watcher in watchers:
        watcher.start()
    try:
        yield from _until_over(inbox, logs, len(watchers), workload)
        last = threading.Thread(target=logs.finish, args=(_LAST_LINES,), daemon=True)
        last.start()
        while last.is_alive() or not inbox.empty():
            news = _next(inbox, 0.05)
            if isinstance(news, tuple) and isinstance(news[1], Batch):
                yield str(news[0]), news[1]
        if logs.problems:
            raise InfrastructureError(logs.problems[0])
    finally:
        for watcher in watchers:
            watcher.stop()
        logs.close()
        # Whoever waits for room must be able to end.
        until = time.monotonic() + _GIVE_UP
        while (logs.alive or any(watcher.alive for watcher in watchers)) and time.monotonic() < until:
            _next(inbox, 0.02)


def _until_over(inbox: Queue[_News], logs: RunLogs, watchers: int, workload: Manifest) -> Iterator[tuple[str, Batch]]:
    objects, listed, looked = RunObjects(uid=str(workload["metadata"]["uid"])), set[int](), 0.0
    while True:
        news = _next(inbox, _LOOK)
        if isinstance(news, StepsetError):
            raise news
        if news is not None:
            source, said = news
            if isinstance(said, Batch):
                yield str(source), said
            else:
                _see(said, objects, logs)
                if source == 0 and source not in listed and objects.workload is None:
                    return  # it was deleted meanwhile
                listed.add(int(source))
                looked = 0.0
        now = time.monotonic()
        if len(listed) == watchers and now - looked > _LOOK:
            looked = now
            if status_of(objects, Reports(), time.time()).phase.final:
                return


def _see(changes: list[Change], objects: RunObjects, logs: RunLogs) -> None:
    for change in changes:
        objects.see(change)
        if change.object.get("kind") == "Pod":
            logs.pod(change.object, gone=change.verb == "DELETED")


def _next(inbox: Queue[_News], timeout: float) -> _News | None:
    try:
        return inbox.get(timeout=timeout)
    except Empty:
        return None
