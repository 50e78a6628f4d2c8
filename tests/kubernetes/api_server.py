"""A server of lists, watches and objects with configurable responses that a real server rarely sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.serving import Serving

Answer = Callable[[str, str, dict[str, str]], tuple[int, Any]]
"""Method, path and query -> HTTP status and body, which is JSON data or bytes; None: the server sends no response. A
watch whose body is a list sends these events and ends; any other successful watch sends no events."""


class ApiServer(Serving):
    """Answers requests by a function, and records them, with their bodies and bearer tokens.

    Adds the kind of an object to a response that contains none. The kind of a created object is that of the request.

    Args:
        answer: returns the response to a request.
        watch: seconds for which a watch without events stays open.
        date: the server's time, as the header Date states it; empty: no such header.
        delay: returns the seconds after which a request is answered.
    """

    def __init__(
        self, answer: Answer, watch: float = 600.0, date: str = "", delay: Callable[[], float] = lambda: 0.0
    ) -> None:
        super().__init__()
        self._answer, self._watch, self._delay = answer, watch, delay
        self._date = f"Date: {date}\r\n".encode() if date else b""
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[tuple[str, str, Any]] = []
        self.tokens: list[str] = []

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (int(row.split(":")[1]) for row in request.splitlines() if row.lower().startswith("content-len")), 0
        )
        sent = await reader.readexactly(length)
        await asyncio.sleep(self._delay())
        method, target, _ = request.split(" ", 2)
        self.tokens.append(next((row.split()[-1] for row in request.splitlines() if "Bearer " in row), ""))
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        values = {name: found[0] for name, found in query.items()}
        self.requests.append((method, path, values))
        if sent:
            self.bodies.append((method, path, json.loads(sent)))
        status, body = self._answer(method, path, values)
        if body is None:
            await asyncio.sleep(600)
        if values.get("watch") and status == 200:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            if isinstance(body, list):
                events = b"".join(json.dumps(event).encode() + b"\n" for event in body)
                writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(events), events))
                return
            await writer.drain()
            await asyncio.sleep(self._watch)
            writer.write(b"0\r\n\r\n")
            return
        if isinstance(body, dict) and method == "POST" and status < 300:
            body = {**body, "kind": json.loads(sent)["kind"]}
        elif isinstance(body, dict) and not path.endswith("/log"):
            body = {"kind": "Status" if status >= 400 else "List", **body}
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = b"HTTP/1.1 %d x\r\n%sContent-Length: %d\r\n\r\n" % (status, self._date, len(text))
        writer.write(head + text)
