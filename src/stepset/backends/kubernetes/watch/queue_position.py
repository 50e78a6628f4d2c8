"""Reads the positions of waiting runs in Kueue's queues through Kueue's visibility API.

The permission is optional: without it, or without the API, runs have no position, and nothing is reported.
Source: sigs.k8s.io/kueue v0.18.2 pkg/visibility/storage/pending_workloads_lq.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.refusal_grace import RefusalGrace
from stepset.backends.kubernetes.api.replies import NOT_FOUND, Reply, UnauthorizedError, UnreachableError
from stepset.backends.kubernetes.api.resources import QUEUE_POSITIONS
from stepset.errors import StepsetError
from stepset.watch.cluster.kueue import read_positions
from stepset.watch.cluster.objects import RunObjects

INTERVAL = 10.0
"""Seconds between two requests for the positions in one queue."""
ANSWER_TIMEOUT = 10.0
"""Seconds in which the server must answer."""
LIMIT = 1000
"""How many workloads are requested from the head of a queue (Kueue's default); later workloads have no position."""

_CHECK_INTERVAL = 1.0
"""Seconds after which the waiting runs are determined again."""


class QueuePositions:
    """Reads the positions of waiting runs in a namespace's LocalQueues, for each queue once in `interval` seconds.

    `available` is False after a refusal, or if the cluster lacks the API: no further request is sent.
    """

    def __init__(self, namespaced: NamespacedClient, interval: float = INTERVAL) -> None:
        self._namespaced, self._interval = namespaced, interval
        self.available = True
        self._versions = list(QUEUE_POSITIONS)
        self._grace = RefusalGrace()
        self._requested_at: dict[str, float] = {}

    async def run(self, runs: Callable[[], Iterable[RunObjects]], changed: Callable[[RunObjects], None]) -> None:
        """Keeps the positions of `runs()` current until it is cancelled, or the server refuses.

        Calls `changed` for each run whose position has changed.
        """
        while self.available:
            for run in await self.read(runs()):
                changed(run)
            await asyncio.sleep(_CHECK_INTERVAL)

    async def read(self, runs: Iterable[RunObjects]) -> list[RunObjects]:
        """Updates `RunObjects.position` of runs that wait, with one request for each queue that is due.

        Returns the runs whose position has changed.
        """
        changed = list[RunObjects]()
        for queue, those in _by_queue(runs).items():
            now = _now()
            if self.available and now - self._requested_at.get(queue, float("-inf")) >= self._interval:
                self._requested_at[queue] = now
                positions = await self._request(queue)
                changed += [] if positions is None else [run for run in those if _set_position(run, positions)]
        return changed

    async def _request(self, queue: str) -> Mapping[str, int] | None:
        """Returns the positions in a queue; None if they cannot be read: the known positions remain."""
        try:
            reply = await self._get(queue)
        except UnauthorizedError:
            self._refused()
            return None
        except UnreachableError:
            self._grace.unreachable()
            return None
        except StepsetError:  # not a reply of a Kubernetes API server
            return None
        if reply is None or (not reply.accepted and not reply.lacks_object):
            self._refused()
            return None
        self._grace.granted()
        return read_positions(reply.body)

    async def _get(self, queue: str) -> Reply | None:
        """Returns the reply for the newest API version that the server has; None if it has none."""
        for version in self._versions:
            path = f"{self._namespaced.one(version, queue)}/pendingworkloads"
            reply = await self._namespaced.client.request(
                "GET", path, query={"limit": str(LIMIT)}, timeout=ANSWER_TIMEOUT
            )
            if reply.status != NOT_FOUND or reply.lacks_object:
                self._versions = [version]
                return reply
        return None

    def _refused(self) -> None:
        self.available = self._grace.covers(_now())


def _by_queue(runs: Iterable[RunObjects]) -> dict[str, list[RunObjects]]:
    found: dict[str, list[RunObjects]] = {}
    for run in runs:
        ticket = run.queued
        if ticket is not None and ticket.queue:
            found.setdefault(ticket.queue, []).append(run)
    return found


def _set_position(run: RunObjects, positions: Mapping[str, int]) -> bool:
    """Sets the position of a run; returns whether it has changed."""
    ticket, before = run.queued, run.position
    run.position = None if ticket is None else ticket.position_in(positions)
    return run.position != before


def _now() -> float:
    return asyncio.get_running_loop().time()
