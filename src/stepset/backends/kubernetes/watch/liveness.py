"""The server liveness check: whether a server whose watches are quiet still answers.

A watch may be quiet for minutes, and its connection may be dead long before an error shows it: the kernel of a server
that hangs, or a proxy, continues to acknowledge packets; a server that is being stopped accepts no new requests and
keeps the old connections for a minute. Therefore the check reads a workload at intervals; if the watch has not reported
the version that was read, all connections are opened again.
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
"""Seconds without data from any watch after which a workload is read, and seconds between two reads."""
SILENT_FOR = 5.0
"""Like QUIET_FOR, if the server did not answer the last read."""
ANSWER_TIMEOUT = 10.0
"""Seconds in which the server must answer."""
GRACE = 3.0
"""Seconds in which a watch must report the version that was read."""

_CHECK_INTERVAL = 0.5
"""Seconds between two checks of whether a read is due."""


@dataclass(frozen=True)
class Probe:
    """A workload to read; `seen` returns its version as the watch last reported it, empty if it was deleted."""

    path: str
    uid: str
    seen: Callable[[], str]


class ServerLiveness:
    """Sends a request to the server when its watches are quiet.

    Args:
        last_received: returns the time at which a watch last received data, on the event loop's clock.
        probe: returns the workload to read next; None if no run is followed.
        reconnect: reopens connections that may be dead.

    Attributes:
        silent_since: the time since which the server has not answered, on the event loop's clock; None while it does.
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
        """Checks until it is cancelled."""
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
        """Reads a workload; `requested` is the time of the request, on the event loop's clock."""
        try:
            reply = await self._client.request("GET", probe.path, timeout=ANSWER_TIMEOUT)
        except UnreachableError:
            # A busy server may send events although it does not answer this request in time.
            if (received := self._last_received()) <= requested:
                self.silent_since = self.silent_since or received
            return
        except StepsetError:  # the reflectors decide what a refusal means
            return
        if not reply.accepted and reply.status != 404:
            return
        about = reply.body.get("metadata")
        found = about if isinstance(about, dict) and about.get("uid") == probe.uid else {}
        # Connections that were open while the server was silent may be dead although it answers again.
        if self.silent_since is not None or not await self._reported(probe, str(found.get("resourceVersion", ""))):
            self.silent_since = None
            self._reconnect()

    async def _reported(self, probe: Probe, version: str) -> bool:
        """Whether the watch has reported that version, or receives data within the grace period."""
        clock, before = asyncio.get_running_loop().time, self._last_received()
        until = clock() + GRACE
        while probe.seen() != version and self._last_received() <= before:
            if clock() > until:
                return False
            await asyncio.sleep(_CHECK_INTERVAL / 5)
        return True


def _spread() -> float:
    """Returns a factor that spreads the requests of many processes that lost the same server."""
    return random.uniform(0.8, 1.2)
