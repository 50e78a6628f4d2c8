"""`ServerLiveness` checks whether a server still answers while the watches of the server send no data.

A watch that works may send no data for minutes. A dead watch also sends no data, and may cause no error for minutes:

- If a server hangs, the kernel of the server or a proxy continues to acknowledge packets.
- If a server is being stopped, the server accepts no new requests, but keeps existing connections for a minute.

Therefore `ServerLiveness` reads a workload at intervals. If the watch has not reported the resource version that was
read, all connections are opened again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.replies import UnreachableError
from stepset.errors import StepsetError

QUIET_FOR = 15.0
"""If no watch has received data for this number of seconds, a workload is read. The next read follows after the same
time."""
SILENT_FOR = 5.0
"""The number of seconds that is used instead of QUIET_FOR if the server did not answer the last read."""
ANSWER_TIMEOUT = 10.0
"""Seconds in which the server must answer."""
GRACE = 3.0
"""Seconds in which a watch must report the resource version that was read."""

_CHECK_INTERVAL = 0.5
"""The interval in seconds at which `ServerLiveness.run` checks whether a read is due."""


@dataclass(frozen=True)
class Probe:
    """A workload to read.

    `seen` is a function that returns the resource version that the watch has reported last. The function returns an
    empty string for a deleted workload.
    """

    path: str
    uid: str
    seen: Callable[[], str]


class ServerLiveness:
    """Reads a workload if the watches receive no data. All times are times of the event loop's clock.

    Args:
        client: the client of the server.
        last_received: a function that returns the time at which a watch last received data.
        probe: a function that returns the workload to read next; None if no run is followed.
        reconnect: a function that reopens all connections.

    Attributes:
        silent_since: the time since which the server has not answered; None if the server answers.
    """

    def __init__(
        self,
        client: Client,
        last_received: Callable[[], float],
        probe: Callable[[], Probe | None],
        reconnect: Callable[[], None],
    ) -> None:
        self._client, self._last_received, self._probe, self._reconnect = client, last_received, probe, reconnect
        self.silent_since: float | None = None

    async def run(self) -> None:
        """Checks the server repeatedly until this method is cancelled."""
        clock = asyncio.get_running_loop().time
        requested, spread = clock(), _spread()
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            received = self._last_received()
            if received > requested:
                self.silent_since = None
            pause = QUIET_FOR if self.silent_since is None else SILENT_FOR
            if clock() - max(received, requested) > pause * spread and (probe := self._probe()) is not None:
                requested, spread = clock(), _spread()
                await self.check(probe, requested)

    async def check(self, probe: Probe, requested: float) -> None:
        """Reads a workload. Calls `reconnect` if the server was silent, or if the watch has missed a change.

        `requested` is the time of the request.
        """
        try:
            reply = await self._client.request("GET", probe.path, timeout=ANSWER_TIMEOUT)
        except UnreachableError:
            # A busy server may send events, but fail to answer this request in time.
            if (received := self._last_received()) <= requested:
                self.silent_since = self.silent_since or received
            return
        except StepsetError:  # the reflectors handle refusals
            return
        if not reply.accepted and reply.status != 404:
            return
        about = reply.body.get("metadata")
        found = about if isinstance(about, dict) and about.get("uid") == probe.uid else {}
        # Even if the server answers again, connections that were open while the server was silent may be dead.
        if self.silent_since is not None or not await self._reported(probe, str(found.get("resourceVersion", ""))):
            self.silent_since = None
            self._reconnect()

    async def _reported(self, probe: Probe, version: str) -> bool:
        """Returns True if the watch has reported `version`, or if a watch receives data within the grace period."""
        clock, before = asyncio.get_running_loop().time, self._last_received()
        until = clock() + GRACE
        while probe.seen() != version and self._last_received() <= before:
            if clock() > until:
                return False
            await asyncio.sleep(_CHECK_INTERVAL / 5)
        return True


def _spread() -> float:
    """Returns a random factor for pauses.

    If all pauses had the same length, many processes would send requests to a restarted server at the same time.
    """
    return random.uniform(0.8, 1.2)
