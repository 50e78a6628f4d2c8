"""A server of pods' logs: each has numbered lines, with timestamps as a kubelet sends them."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
_START = datetime(2026, 1, 1, tzinfo=UTC)
_BLOCK = 1000


class LogServer:
    """Answers every request with a log.

    Args:
        lines: of each log.
        follows: goes on after them, and prints nothing more.

    Attributes:
        sent: bytes that were handed to the network.
        most_at_once: how many responses were open at the same time.
    """

    def __init__(self, lines: int, *, follows: bool = False) -> None:
        self._lines, self._follows = lines, follows
        self._tasks: set[asyncio.Task[None]] = set()
        self.sent = self.most_at_once = self._open = 0
        self.port = 0

    async def __aenter__(self) -> LogServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                self._open += 1
                self.most_at_once = max(self.most_at_once, self._open)
                try:
                    await self._answer(reader, writer, b"follow=true" in request)
                finally:
                    self._open -= 1
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, followed: bool) -> None:
        writer.write(HEAD)
        for first in range(0, self._lines, _BLOCK):
            text = b"".join(map(_line, range(first, min(first + _BLOCK, self._lines))))
            writer.write(b"%x\r\n%s\r\n" % (len(text), text))
            await writer.drain()
            self.sent += len(text)
        if followed and self._follows:
            await reader.read(1)  # until the client leaves
            raise ConnectionError
        writer.write(b"0\r\n\r\n")


def _line(number: int) -> bytes:
    at = _START + timedelta(milliseconds=number)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06}000Z line {number}\n".encode()
