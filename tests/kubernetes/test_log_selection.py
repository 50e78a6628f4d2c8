"""The lines of a run's log that a selection names, if the log of a pod breaks off."""

from __future__ import annotations

import asyncio

import pytest

from stepset.backends.base import LogSelection
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs import reading
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.backends.kubernetes.logs.reading import LogRange
from stepset.backends.kubernetes.logs.selection import existing_rows
from stepset.errors import InfrastructureError
from tests.kubernetes.log_server import HEAD, line
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
