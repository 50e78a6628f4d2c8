"""The last lines of a terminated container, which the container runtime may write after the end is reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pod_log import PodLog
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.watch.lines import Batch
from tests.kubernetes.log_server import NumberedAnswers
from tests.kubernetes.nowhere import client_at

RUNNING = LogPod("u", "pod", "node", "node", 0, 0, "node 0", False, True, 0, False, False)
NO_CONTAINER = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


class LateServer(NumberedAnswers):
    """Each response is complete."""

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await self._next(reader)
        self.requests += 1
        writer.write(NO_CONTAINER if answer is None else answer + b"0\r\n\r\n")
        await writer.drain()


def read(server: LateServer, pod: LogPod, *reports: LogPod) -> tuple[list[str], PodLog]:
    """Reads a pod's log; each of `reports` is reported after one more response."""
    lines: list[str] = []

    async def consume(batch: Batch, position: object) -> None:
        lines.extend(text.decode() for _, text in batch.lines)

    async def run() -> PodLog:
        async with server, client_at(server.port) as client:
            log = PodLog(NamespacedClient(client, "ns"), pod, consume, LogConnections())
            reading = asyncio.create_task(log.run())
            async with asyncio.timeout(60):
                for number, report in enumerate(reports, 1):
                    while server.requests < number:
                        await asyncio.sleep(0.01)
                    log.see(report)
                await reading
            return log

    return lines, asyncio.run(run())


def texts(numbers: Sequence[int]) -> list[str]:
    return [f"line {number}" for number in numbers]


def test_lines_that_are_written_after_the_reported_end_are_read() -> None:
    server = LateServer(range(3), range(3), range(6))
    lines, log = read(server, RUNNING, replace(RUNNING, over=True))
    assert (lines, log.problem) == (texts(range(6)), None)


def test_a_reader_that_starts_just_after_the_end_reads_them_too() -> None:
    server = LateServer(range(3), range(6))
    lines, _ = read(server, replace(RUNNING, over=True, ended=time.time()))
    assert (lines, server.requests) == (texts(range(6)), 2)


@pytest.mark.parametrize("ended", [None, 1_700_000_000.0])
def test_the_log_of_a_container_that_ended_long_ago_is_requested_once(ended: float | None) -> None:
    server = LateServer(range(3))
    lines, _ = read(server, replace(RUNNING, over=True, ended=ended))
    assert (lines, server.requests) == (texts(range(3)), 1)


def test_a_node_that_has_removed_the_log_meanwhile_is_no_problem() -> None:
    server = LateServer(range(3), None)
    lines, log = read(server, replace(RUNNING, over=True, ended=time.time()))
    assert (lines, log.problem, server.requests) == (texts(range(3)), None, 2)
