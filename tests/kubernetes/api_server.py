"""A server of lists, watches and objects, by plain answers: what a real one is hard to be made to say."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = Callable[[str, str, dict[str, str]], tuple[int, Any]]
"""Method, path and query -> HTTP status and body; None: no answer comes."""


class ApiServer:
    """Answers requests by a function, and keeps them.

    Args:
        answer: says what to answer.
        watch: seconds for which a watch stays open that brings nothing.
    """

    def __init__(self, answer: Answer, watch: float = 600.0) -> None:
        self._answer, self._watch = answer, watch
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.port = 0

    async def __aenter__(self) -> ApiServer:
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
                await self._one(reader, writer)
        writer.close()

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
