"""A log that does not continue where it was cut: its file was rotated, or its container was restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs import pod_log
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pod_log import PodLog
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.watch.lines import Batch
from tests.kubernetes.log_server import HEAD, line
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.serving import Serving

POD = LogPod("u", "pod", "node", "node", 0, 0, "node 0", False, True, 0, False, False)


class RotatingServer(Serving):
    """Answers each request with the lines of some numbers; from the second request on, the response stays open.

    Args:
        answers: the line numbers for each request; the last ones also for all further requests.
    """

    def __init__(self, *answers: Sequence[int]) -> None:
        super().__init__()
        self._answers = answers
        self.requests = 0

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        numbers = self._answers[min(self.requests, len(self._answers) - 1)]
        text = b"".join(map(line, numbers))
        writer.write(HEAD + b"%x\r\n%s\r\n" % (len(text), text))
        await writer.drain()
        self.requests += 1
        if self.requests > 1:
            await reader.read(1)  # until the client closes the connection
        raise ConnectionError


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the time in which a restart must be reported."""
    monkeypatch.setattr(pod_log, "RESTART_REPORT_TIMEOUT", 1.0)


@pytest.mark.usefixtures("quick")
def test_no_lines_are_lost_if_the_reader_reconnects_while_it_waits_for_a_restart() -> None:
    first, rest = range(3), range(100_000, 100_003)

    async def shown() -> list[str]:
        lines: list[str] = []

        async def consume(batch: Batch, position: object) -> None:
            lines.extend(text.decode() for _, text in batch.lines)

        async with RotatingServer(first, rest) as server, client_at(server.port) as client:
            log = PodLog(NamespacedClient(client, "ns"), POD, consume, LogConnections())
            reading = asyncio.create_task(log.run())
            async with asyncio.timeout(60):
                while server.requests < 2:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.3)  # the lines after the rotation have arrived, and are not consumed yet
                assert len(lines) == len(first)
                log.reconnect()
                while len(lines) < len(first) + len(rest):
                    await asyncio.sleep(0.01)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return lines

    assert asyncio.run(shown()) == [f"line {number}" for number in (*first, *rest)]
