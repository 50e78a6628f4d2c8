"""Forwards watches and logs through a gate, with the faults that apply to streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from tests.contract.proxy.gate import Gate

_TICK = 0.05
_BOOKMARKS_EVERY = 1.0
_CHUNK = 1 << 16
_WAITING = 64
"""The size of the queue of chunks; while it is full, nothing is read from the server."""


class AbortedError(Exception):
    """Aborts the connection to the client."""


UNPARSABLE: tuple[Any, ...] = (
    {"kind": "Pod", "metadata": [1, 2], "spec": "x", "status": 7},
    {"kind": "Pod", "apiVersion": "v1", "spec": {}},
    {"kind": "Pod", "metadata": {"name": 5, "uid": None, "labels": "a", "ownerReferences": {"b": 1}}},
    "not an object",
)
"""Objects with wrong types or without metadata, and a string."""


@dataclass
class Source:
    """A response of the server that is forwarded to a client.

    Args:
        gate: the gate.
        request: the client's request.
        answer: the server's response.
        kind: the kind of the request.
    """

    gate: Gate
    request: web.Request
    answer: aiohttp.ClientResponse
    kind: str
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    def with_unparsable_items(self, data: bytes) -> bytes:
        """Adds unparsable objects to a list, if that fault is active."""
        if not any(self.gate.active("list", "unparsable")):
            return data
        found = json.loads(data)
        found["items"] = [*UNPARSABLE, *(found.get("items") or ())]
        return json.dumps(found).encode()

    async def respond(self) -> web.StreamResponse:
        """Sends the headers of the response."""
        response = web.StreamResponse(status=200, headers={"Content-Type": self.answer.headers["Content-Type"]})
        response.enable_chunked_encoding()
        await response.prepare(self.request)
        return response

    def held(self) -> bool:
        """Whether a fault currently stops this stream."""
        return any(self.gate.active(self.kind, "hang", "quiet"))

    def ends(self) -> bool:
        """Whether a fault ends this stream now."""
        age = asyncio.get_running_loop().time() - self.began
        return any(age > rule.seconds for rule in self.gate.active(self.kind, "close"))

    @asynccontextmanager
    async def chunks(self) -> AsyncIterator[asyncio.Queue[bytes | None]]:
        """A queue of the server's chunks; None marks the end, and empty bytes an aborted connection."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)

        async def pump() -> None:
            try:
                async for chunk in self.answer.content.iter_chunked(_CHUNK):
                    await queue.put(chunk)
            except (aiohttp.ClientError, OSError):
                await queue.put(b"")
            else:
                await queue.put(None)

        task = asyncio.create_task(pump())
        try:
            yield queue
        finally:
            task.cancel()


async def watch(source: Source) -> web.StreamResponse:
    """Forwards a watch, event by event."""
    response = await source.respond()
    version = source.request.query.get("resourceVersion", "")
    kind = _kind_of_items(source.request.path)
    rest, bookmarked, spoiled = b"", 0.0, False
    waiting: list[bytes] = []
    over = False
    async with source.chunks() as queue:
        while True:
            with contextlib.suppress(TimeoutError):
                chunk = await asyncio.wait_for(queue.get(), _TICK)
                if chunk == b"":
                    raise AbortedError
                over = chunk is None
                *lines, rest = (rest + (chunk or b"")).split(b"\n")
                waiting += [line for line in lines if line]
            if source.ends():
                break
            if source.held():
                continue
            if any(source.gate.active("watch", "bookmarks")):
                now = asyncio.get_running_loop().time()
                if now - bookmarked > _BOOKMARKS_EVERY:
                    bookmarked = now
                    await response.write(_bookmark(kind, version))
                continue
            if not spoiled and any(source.gate.active("watch", "unparsable")):
                spoiled = True
                bad = [json.dumps({"type": "MODIFIED", "object": each}).encode() for each in UNPARSABLE]
                await response.write(b"\n".join([*bad, b'{"type": "MODIFIED"}', b'{"type": "MODIFIED", "obj', b""]))
            for line in waiting:
                version = _version(line) or version
                await response.write(line + b"\n")
            waiting.clear()
            if over:
                break
    await response.write_eof()
    return response


async def logs(source: Source) -> web.StreamResponse:
    """Forwards a log."""
    gate = source.gate
    response = await source.respond()
    cut = gate.spend("cut", "log")
    left = gate.random_bytes(cut.bytes) if cut is not None else None
    follows = source.request.query.get("follow") == "true"
    async with source.chunks() as queue:
        while (chunk := await queue.get()) is not None:
            if chunk == b"":
                raise AbortedError
            while source.held():
                await asyncio.sleep(_TICK)
            if follows and chunk.endswith(b"\n") and (line := gate.spend("long_line", "log")) is not None:
                await response.write(chunk)
                await _long_line(response, chunk, line.bytes)
                continue
            if left is not None and len(chunk) > left:
                await response.write(chunk[:left])
                await asyncio.sleep(_TICK)  # abort() discards data that is not sent yet
                raise AbortedError
            left = None if left is None else left - len(chunk)
            await response.write(chunk)
            for rule in gate.active("log", "slow"):
                await asyncio.sleep(len(chunk) / rule.bytes)
    await response.write_eof()
    return response


async def _long_line(response: web.StreamResponse, after: bytes, size: int) -> None:
    """Sends a line of rank 0 as the agent prints it, in parts of 1 MiB, with the timestamp of the previous line."""
    stamp = after.rstrip(b"\n").rpartition(b"\n")[2].partition(b" ")[0]
    part = stamp + b" [rank 0+] " + b"x" * (1 << 20) + b"\n"
    for _ in range(size // (1 << 20)):
        await response.write(part)
    await response.write(stamp + b" [rank 0] the end of a long line\n")


def _bookmark(kind: str, version: str) -> bytes:
    about = {"resourceVersion": version, "creationTimestamp": None}
    return json.dumps({"type": "BOOKMARK", "object": {"kind": kind, "metadata": about}}).encode() + b"\n"


def _version(line: bytes) -> str:
    """The resource version of an event's object."""
    found = json.loads(line).get("object", {}).get("metadata", {})
    return str(found.get("resourceVersion", ""))


def _kind_of_items(path: str) -> str:
    plural = path.rstrip("/").rpartition("/")[2]
    return {"pods": "Pod", "jobsets": "JobSet", "jobs": "Job", "events": "Event"}.get(plural, plural[:-1].capitalize())
