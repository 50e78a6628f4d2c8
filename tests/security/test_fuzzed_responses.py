"""Whatever a server answers, the client returns a reply or raises an error of stepset, and sends the next request."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.replies import Reply
from stepset.errors import StepsetError
from tests.fuzzing import FUZZED
from tests.kubernetes.nowhere import client_at
from tests.security.altered import PIECES
from tests.security.parsers import REFUSAL, dumped

HEAD = (
    b'HTTP/1.1 422 Unprocessable\r\nContent-Type: application/json\r\nWarning: 299 - "text"\r\n'
    b"Date: Thu, 26 Nov 2026 00:00:00 GMT\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n"
)
VALID = HEAD % len(dumped(REFUSAL)) + dumped(REFUSAL)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
CUTS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 40), PIECES), max_size=4)


async def answer(data: bytes, stream: bool) -> Reply | bytes | None:
    """Returns what a client reads from a server that sends these bytes and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with client_at(server.sockets[0].getsockname()[1]) as client:
            with suppress(StepsetError):
                return await (_streamed(client) if stream else client.get("/x"))
            return None
    finally:
        server.close()
        await server.wait_closed()


async def _streamed(client: Client) -> bytes:
    async with client.stream("/x", {}, 10) as pieces:
        return b"".join([piece async for piece in pieces])


@FUZZED
@given(st.sampled_from([VALID, CHUNKED]), CUTS, st.booleans())
@example(b"", [], False)
@example(VALID.replace(b"422 ", b"99999999 "), [], False)
@example(VALID.replace(b"Content-Length: ", b"Content-Length: 9" + b"9" * 4301), [], False)
@example(VALID.replace(b"Date: Thu", b"Date: -"), [], False)
@example(CHUNKED.replace(b"2\r\n{}", b"f" * 4301 + b"\r\n{}"), [], True)
def test_any_response_is_a_reply_or_an_error(valid: bytes, cuts: list[tuple[int, int, bytes]], stream: bool) -> None:
    data = valid
    for at, length, piece in cuts:
        place = at % max(1, len(data))
        data = data[:place] + piece + data[place + length :]
    found = asyncio.run(asyncio.wait_for(answer(data, stream), 60))
    assert found is None or isinstance(found, bytes if stream else Reply)
