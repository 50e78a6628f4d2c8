"""Reads the positions of waiting runs in Kueue's queues, through Kueue's visibility API.

The permission for this API is optional. If the account lacks the permission, or if the cluster does not serve the API,
stepset shows no positions and reports no problem.
Source: sigs.k8s.io/kueue v0.18.2 pkg/visibility/storage/pending_workloads_lq.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.refusal_grace import RefusalGrace
from stepset.backends.kubernetes.api.replies import NOT_FOUND, Reply, UnauthorizedError, UnreachableError
from stepset.backends.kubernetes.api.resources import QUEUE_POSITIONS
from stepset.errors import StepsetError
from stepset.watch.cluster.kueue.workload import read_positions
from stepset.watch.cluster.objects import RunObjects

INTERVAL = 10.0
"""Seconds between two requests for the same queue."""
ANSWER_TIMEOUT = 10.0
"""Seconds in which the server must answer."""
LIMIT = 1000
"""The number of workloads at the head of a queue whose positions are requested (Kueue's default).

The positions of later workloads are unknown."""


class QueuePositions:
    """Reads the positions of waiting runs in the LocalQueues of a namespace.

    For each queue, a `QueuePositions` sends one request every `interval` seconds. If the server refuses a request or
    does not serve the API, `available` becomes False. Then no further requests are sent.
    """

    def __init__(self, namespaced: NamespacedClient, interval: float = INTERVAL) -> None:
        self._namespaced, self._interval = namespaced, interval
        self.available = True
        self._versions = list(QUEUE_POSITIONS)
        self._grace = RefusalGrace()
        self._requested_at: dict[str, float] = {}

    async def read(self, runs: Iterable[RunObjects]) -> list[RunObjects]:
        """Updates `RunObjects.position` of the waiting runs, and returns the runs whose position has changed.

        If the last request for a queue was at least `interval` seconds ago, sends a new request for the queue.
        """
        changed = list[RunObjects]()
        for queue, those in _by_queue(runs).items():
            now = asyncio.get_running_loop().time()
            if self.available and now - self._requested_at.get(queue, float("-inf")) >= self._interval:
                self._requested_at[queue] = now
                positions = await self._request(queue)
                changed += [] if positions is None else [run for run in those if _set_position(run, positions)]
        return changed

    async def _request(self, queue: str) -> Mapping[str, int] | None:
        """Returns the positions in a queue. Returns None if the positions cannot be read."""
        try:
            reply = await self._get(queue)
        except UnauthorizedError:
            self._refused()
            return None
        except UnreachableError:
            self._grace.unreachable()
            return None
        except StepsetError:  # the reply is not a reply of a Kubernetes API server
            return None
        if reply is None or (not reply.accepted and not reply.lacks_object):
            self._refused()
            return None
        self._grace.granted()
        return read_positions(reply.body)

    async def _get(self, queue: str) -> Reply | None:
        """Returns the reply for the newest API version that the server serves; None if no known version is served."""
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
        self.available = self._grace.covers(asyncio.get_running_loop().time())


def _by_queue(runs: Iterable[RunObjects]) -> dict[str, list[RunObjects]]:
    found: dict[str, list[RunObjects]] = {}
    for run in runs:
        ticket = run.queued
        if ticket is not None and ticket.queue:
            found.setdefault(ticket.queue, []).append(run)
    return found


def _set_position(run: RunObjects, positions: Mapping[str, int]) -> bool:
    """Sets the position of a run. Returns whether the position has changed."""
    ticket, before = run.queued, run.position
    run.position = None if ticket is None else ticket.position_in(positions)
    return run.position != before
