"""The body of an answer that comes bit by bit, each time all that has arrived.

Called by Stream. A server sends each line of a log that is followed as a chunk of its own (RFC 9112 7.1), and
urllib3 hands them on one by one; a rank that prints much would keep a reader busy with nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SIZE = 1 << 16
"""Bytes after which a piece is handed on although more has arrived."""


class Chunks:
    """Takes chunks apart, in data that may end anywhere.

    Attributes:
        ended: the last one was there.
    """

    def __init__(self) -> None:
        self.ended = False
        self._left = 0
        self._head = b"\r\n"

    @property
    def whole(self) -> bool:
        """Whether nothing of the body is still to come, not even the line end that closes it."""
        return self.ended and self._head == b"\r\n"

    def feed(self, data: bytes) -> bytes:
        """What the next data of the body holds.

        Raises:
            OSError: these are no chunks.
        """
        out, at, left = [], 0, self._left
        if not left:
            data = self._head + data
        while not self.ended:
            if left:
                piece = data[at : at + left]
                out.append(piece)
                at += len(piece)
                left -= len(piece)
                if left:
                    break
            end = data.find(b"\r\n", at + 2)
            if end < 0:
                break
            try:
                left = int(data[at:end].partition(b";")[0], 16)
            except ValueError:
                raise OSError("the answer is garbled") from None
            self.ended = not left
            at = end + 2
        self._left, self._head = left, data[at:]
        return b"".join(out)


def pieces(response: Any) -> Iterator[bytes]:
    """What arrives, in pieces of up to about SIZE bytes.

    Args:
        response: of urllib3, its body not read.

    Raises:
        OSError: the connection was cut; so do urllib3's own errors say.
    """
    from urllib3.util.wait import wait_for_read

    if not getattr(response, "chunked", False) or response.headers.get("Content-Encoding"):
        yield from response.stream(SIZE, decode_content=True)
        return
    raw, sock, chunks = response._fp, response.connection.sock, Chunks()
    while not chunks.ended:
        data = raw.fp.read1(SIZE)
        some, size, open_ = [data], len(data), bool(data)
        while open_ and size < SIZE and wait_for_read(sock, 0.0):
            data = raw.fp.read1(SIZE)
            some.append(data)
            size, open_ = size + len(data), bool(data)
        if piece := chunks.feed(b"".join(some)):
            yield piece
        if not open_ and not chunks.ended:
            raise OSError("the connection was closed amid an answer")
    if chunks.whole:
        # The connection can be used again.
        raw.close()
        response.release_conn()
