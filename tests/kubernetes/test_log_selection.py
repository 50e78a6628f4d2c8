"""The lines of a run's log that a selection names, if the log of a pod breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from stepset.backends.base import LogSelection
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs import reading
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.backends.kubernetes.logs.reading import LogRange
from stepset.backends.kubernetes.logs.run_logs import PodOutput, RunLogs
from stepset.backends.kubernetes.logs.selection import existing_rows, new_rows
from stepset.errors import InfrastructureError
from stepset.watch.log_cursor import second_of
from tests.kubernetes.log_server import HEAD, LogServer, line
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.serving import Serving

POD = LogPod("u", "pod", "node", "node", 0, 0, "node 0", False, True, 0, True, False)


class BrokenServer(Serving):
    """Answers every request with three lines, and closes the connection before the end of the response."""

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = b"".join(map(line, range(3)))
        writer.write(HEAD + b"%x\r\n%s\r\n" % (len(text), text))
        await writer.drain()
        writer.close()
        raise ConnectionError


@pytest.mark.parametrize("tail", [None, 2])
def test_lines_that_were_read_precede_the_error(monkeypatch: pytest.MonkeyPatch, tail: int | None) -> None:
    monkeypatch.setattr(reading, "_TRIES", 1)
    found: list[bytes] = []

    async def read() -> None:
        async with BrokenServer() as server, client_at(server.port) as client:
            namespaced, selection = NamespacedClient(client, "ns"), LogSelection(tail=tail)
            async for block in existing_rows(namespaced, "run", [POD], selection, LogRange()):
                found.extend(row for _, row in block)

    with pytest.raises(InfrastructureError):
        asyncio.run(read())
    assert found == [b"[node 0] line %d" % number for number in range(3)][-(tail or 3) :]


class GrowingServer(LogServer):
    """Answers requests with `since` like a kubelet. The first request gets five lines, every later one seven."""

    def __init__(self) -> None:
        super().__init__(lines=5)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        text = b"".join(map(line, range(self._lines))) if b"sinceTime=2026-01-01T00%3A00%3A01" not in request else b""
        writer.write(HEAD + (b"%x\r\n%s\r\n" % (len(text), text) if text else b"") + b"0\r\n\r\n")
        self._lines = 7


@pytest.mark.parametrize(
    ("selection", "existing"),
    [(LogSelection(tail=2, follow=True), [3, 4]), (LogSelection(tail=0, follow=True), []), (LogSelection(), range(5))],
)
def test_a_followed_log_continues_after_the_existing_lines(selection: LogSelection, existing: list[int]) -> None:
    assert asyncio.run(followed(selection)) == [b"[node 0] line %d" % number for number in (*existing, 5, 6)]


def test_a_log_without_lines_in_the_selected_time_is_followed_from_that_time() -> None:
    first = second_of(line(0).split(b" ")[0]).timestamp()
    assert asyncio.run(followed(LogSelection(since=first + 1.5, follow=True))) == []


async def followed(selection: LogSelection) -> list[bytes]:
    """Returns the texts of the rows that `stepset logs -f` prints for one pod."""
    found: list[bytes] = []
    outputs: list[PodOutput] = []

    async def consume(output: PodOutput) -> None:
        outputs.append(output)

    async def consumed() -> AsyncGenerator[PodOutput, None]:
        for output in outputs:
            yield output

    async with GrowingServer() as server, client_at(server.port) as client:
        namespaced, wanted = NamespacedClient(client, "ns"), LogRange(selection.since)
        async for block in existing_rows(namespaced, "run", [replace(POD, over=False)], selection, wanted):
            found.extend(row for _, row in block)
        logs = RunLogs(namespaced, consume, positions=wanted.positions)
        logs.see([POD])
        assert await logs.finish(60), logs.problems
        await logs.close()
    async for block in new_rows(consumed(), None):
        found.extend(row for _, row in block)
    return found
