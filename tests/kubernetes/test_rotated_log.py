"""A log that does not continue where it was cut: its file was rotated, or its container was restarted."""

from __future__ import annotations

import asyncio

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs import pod_log
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pod_log import PodLog
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.watch.lines import Batch
from tests.kubernetes.log_server import NumberedAnswers
from tests.kubernetes.nowhere import client_at

POD = LogPod("u", "pod", "node", "node", 0, 0, "node 0", False, True, 0, False, False)


class RotatingServer(NumberedAnswers):
    """From the second request on, the response stays open."""

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await self._next(reader)
        assert answer is not None
        writer.write(answer)
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
