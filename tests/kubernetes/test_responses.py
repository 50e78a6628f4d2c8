"""Streamed responses: data is passed on as it arrives, and a response ends only where the server ends it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.replies import UnreachableError
from tests.kubernetes.nowhere import client_at

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*texts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(text), text) for text in texts)


END = b"0\r\n\r\n"


class Server:
    """Answers each request with the next response; closes the connection after an incomplete one."""

    def __init__(self, answers: list[bytes | list[bytes]]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.answers = answers
        self.accepted = 0
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        answers = iter(self.answers)
        answer = next(answers, None)
        while answer is not None:
            client, _ = self.listener.accept()
            self.accepted += 1
            with client:
                while answer is not None and client.recv(65536):
                    pieces = [answer] if isinstance(answer, bytes) else answer
                    for piece in pieces:
                        client.sendall(piece)
                    whole = b"".join(pieces).endswith(END)
                    answer = next(answers, None)
                    if not whole:
                        break


@contextmanager
def serving(*answers: bytes | list[bytes]) -> Iterator[Server]:
    server = Server(list(answers))
    try:
        yield server
    finally:
        server.thread.join(10)
        server.listener.close()


def read(server: Server, times: int = 1) -> list[list[bytes]]:
    """Returns the pieces of `times` responses."""

    async def reads(client: Client) -> list[bytes]:
        async with client.stream("/", {}, 10) as pieces:
            return [piece async for piece in pieces]

    async def all_of_them() -> list[list[bytes]]:
        async with client_at(server.listener.getsockname()[1]) as client:
            return [await reads(client) for _ in range(times)]

    return asyncio.run(all_of_them())


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=20), st.lists(st.integers(1, 400), min_size=1))
@settings(max_examples=25, deadline=None)
def test_chunks_may_be_cut_anywhere(texts: list[bytes], sizes: list[int]) -> None:
    wire, at, turn = HEAD + chunked(*texts) + END, 0, 0
    pieces = []
    while at < len(wire):
        size = sizes[turn % len(sizes)]
        pieces.append(wire[at : at + size])
        at, turn = at + size, turn + 1
    with serving(pieces) as server:
        assert b"".join(read(server)[0]) == b"".join(texts)


def test_data_that_has_arrived_is_passed_on_in_few_pieces() -> None:
    texts = [b"line %d\n" % n for n in range(1000)]
    with serving(HEAD + chunked(*texts) + END) as server:
        (found,) = read(server)
    assert b"".join(found) == b"".join(texts)
    assert len(found) < 20


def test_a_connection_that_is_closed_within_a_response_is_an_error() -> None:
    found = list[bytes]()

    async def reads(port: int) -> None:
        async with client_at(port) as client, client.stream("/", {}, 10) as pieces:
            async for piece in pieces:
                found.append(piece)

    with serving(HEAD + chunked(b"some")) as server, pytest.raises(UnreachableError, match="not completed"):
        asyncio.run(reads(server.listener.getsockname()[1]))
    assert found == [b"some"]


def test_an_invalid_chunk_is_an_error() -> None:
    with serving(HEAD + b"what?\r\n\r\n") as server, pytest.raises(UnreachableError, match="400"):
        read(server)


def test_a_connection_is_used_again_after_a_complete_response() -> None:
    with serving(*[HEAD + chunked(b"x") + END] * 3) as server:
        assert read(server, times=3) == [[b"x"]] * 3
    assert server.accepted == 1


def test_a_response_may_have_a_content_length() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello") as server:
        assert read(server) == [[b"hello"]]
