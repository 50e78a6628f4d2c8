"""A server of pod logs: each has numbered lines with timestamps in the format of a kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from tests.kubernetes.serving import Serving

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
_START = datetime(2026, 1, 1, tzinfo=UTC)
_BLOCK = 1000


class LogServer(Serving):
    """Answers every request with a log.

    Args:
        lines: the number of lines of each log.
        follows: whether a followed log stays open after its lines.

    Attributes:
        sent: the number of bytes that were written to connections.
        most_at_once: the largest number of responses that were open at the same time.
    """

    def __init__(self, lines: int, *, follows: bool = False) -> None:
        super().__init__()
        self._lines, self._follows = lines, follows
        self.sent = self.most_at_once = self._open = 0

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        try:
            await self._answer(reader, writer, b"follow=true" in request)
        finally:
            self._open -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, followed: bool) -> None:
        writer.write(HEAD)
        for first in range(0, self._lines, _BLOCK):
            text = b"".join(map(line, range(first, min(first + _BLOCK, self._lines))))
            writer.write(b"%x\r\n%s\r\n" % (len(text), text))
            await writer.drain()
            self.sent += len(text)
        if followed and self._follows:
            await reader.read(1)  # until the client closes the connection
            raise ConnectionError
        writer.write(b"0\r\n\r\n")


def line(number: int) -> bytes:
    """Returns a line with its timestamp in the format of a kubelet."""
    at = _START + timedelta(milliseconds=number)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06}000Z line {number}\n".encode()


class NumberedAnswers(Serving):
    """A server whose answers have the lines of some numbers. Subclasses answer the requests.

    Args:
        answers: the line numbers for each request; the last ones also for all further requests. None is an error.

    Attributes:
        requests: the number of requests that were answered.
    """

    def __init__(self, *answers: Sequence[int] | None) -> None:
        super().__init__()
        self._answers = answers
        self.requests = 0

    async def _next(self, reader: asyncio.StreamReader) -> bytes | None:
        """Reads a request. Returns the next answer as one chunk of a response, or None for an error."""
        await reader.readuntil(b"\r\n\r\n")
        numbers = self._answers[min(self.requests, len(self._answers) - 1)]
        if numbers is None:
            return None
        text = b"".join(map(line, numbers))
        return HEAD + b"%x\r\n%s\r\n" % (len(text), text)
