"""A server of lists, watches and objects with configurable responses that a real server rarely sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.serving import Serving

Answer = Callable[[str, str, dict[str, str]], tuple[int, Any]]
"""Method, path and query -> HTTP status and body; None: the server sends no response."""


class ApiServer(Serving):
    """Answers requests by a function, and records them.

    Args:
        answer: returns the response to a request.
        watch: seconds for which a watch stays open; no watch sends events.
    """

    def __init__(self, answer: Answer, watch: float = 600.0) -> None:
        super().__init__()
        self._answer, self._watch = answer, watch
        self.requests: list[tuple[str, str, dict[str, str]]] = []

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(row.split(":")[1]) for row in head.splitlines() if row.lower().startswith("content-len")), 0)
        await reader.readexactly(length)
        method, target, _ = head.split(" ", 2)
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        self.requests.append((method, urlsplit(target).path, query))
        status, body = self._answer(method, urlsplit(target).path, query)
        if body is None:
            await asyncio.sleep(600)
        if query.get("watch"):
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(self._watch)
            writer.write(b"0\r\n\r\n")
            return
        text = json.dumps(body).encode()
        writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text))
