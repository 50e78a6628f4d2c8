"""Answers that come bit by bit: all that has arrived at a time, and an end only where the server made one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.backends.kubernetes.body import Chunks
from stepset.backends.kubernetes.client import Connection, UnreachableError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*texts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(text), text) for text in texts)


END = b"0\r\n\r\n"


class Server:
    """Answers each request on a connection with the next of some answers; then the connection is closed."""

    def __init__(self, answers: list[bytes]) -> None:
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
                    client.sendall(answer)
                    whole = answer.endswith(END)
                    answer = next(answers, None)
                    if not whole:
                        break


@contextmanager
def serving(*answers: bytes) -> Iterator[tuple[Server, Connection]]:
    from kubernetes import client

    server = Server(list(answers))
    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{server.listener.getsockname()[1]}"
    configuration.retries = False
    try:
        with Connection(client.ApiClient(configuration), "default") as connection:
            yield server, connection
    finally:
        server.thread.join(10)
        server.listener.close()


def read(connection: Connection) -> list[bytes]:
    with connection.stream("/", {}, 10) as stream:
        return list(iter(stream.read, b""))


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=20), st.lists(st.integers(1, 400), min_size=1))
def test_chunks_may_be_cut_anywhere(texts: list[bytes], sizes: list[int]) -> None:
    wire, out, at, turn = chunked(*texts) + END, b"", 0, 0
    chunks = Chunks()
    while at < len(wire):
        size = sizes[turn % len(sizes)]
        assert not chunks.whole
        out += chunks.feed(wire[at : at + size])
        at, turn = at + size, turn + 1
    assert chunks.whole
    assert out == b"".join(texts)


def test_what_has_arrived_comes_in_one_piece() -> None:
    texts = [b"line %d\n" % n for n in range(1000)]
    with serving(HEAD + chunked(*texts) + END) as (_, connection):
        found = read(connection)
    assert b"".join(found) == b"".join(texts)
    assert len(found) < 20


def test_a_connection_that_is_closed_amid_an_answer_is_no_end() -> None:
    with serving(HEAD + chunked(b"some")) as (_, connection), connection.stream("/", {}, 10) as stream:
        assert stream.read() == b"some"
        with pytest.raises(UnreachableError, match="closed amid an answer"):
            stream.read()


def test_something_else_than_chunks_is_no_answer() -> None:
    with serving(HEAD + b"what?\r\n\r\n") as (_, connection), pytest.raises(UnreachableError, match="garbled"):
        read(connection)


def test_a_connection_is_used_again_after_an_answers_end() -> None:
    with serving(*[HEAD + chunked(b"x") + END] * 3) as (server, connection):
        assert [read(connection) for _ in range(3)] == [[b"x"]] * 3
    assert server.accepted == 1


def test_an_answer_may_have_a_length_instead() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello") as (_, connection):
        assert read(connection) == [b"hello"]
