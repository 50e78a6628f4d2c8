"""An answer that comes bit by bit, and can be given up by another thread at any moment.

Made by client.py, for watches and logs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

from stepset.backends.kubernetes.body import pieces


class Stream:
    """An answer that comes bit by bit: a watch, a log that is followed. `with` asks for it.

    Args:
        ask: sends the request; gives a urllib3 response whose body has not been read.
        unreachable: an error of the network, in words.
    """

    def __init__(self, ask: Callable[[], Any], unreachable: Callable[[object], Exception]) -> None:
        self._ask, self._unreachable = ask, unreachable
        self._waiting: Any = None
        self._response: Any = None
        self._pieces: Iterator[bytes] = iter(())
        self._closed = False

    def __enter__(self) -> Stream:
        """Waits for the answer's beginning.

        Raises:
            RefusedError: the server says no.
            UnreachableError: there is none, or it was closed meanwhile.
            InfrastructureError, BadInputError: as `Connection.request` does.
        """
        from stepset.backends.kubernetes.opening import telling

        try:
            with telling(self._sent):
                self._response = self._ask()
        finally:
            self._waiting = None
        self._pieces = pieces(self._response)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        self._response.close()

    def read(self) -> bytes:
        """The next bytes, as soon as there are some; b"" at the end, or once it is closed.

        Raises:
            UnreachableError: it was cut, or nothing came for as long as was agreed.
        """
        from urllib3.exceptions import HTTPError

        try:
            return b"" if self._closed else next(self._pieces, b"")
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # Closed by another thread, urllib3 and http.client stumble in several ways over what is not there any more.
            if self._closed:
                return b""
            if isinstance(error, AttributeError):
                raise
            raise self._unreachable(error) from error

    def close(self) -> None:
        """Ends it; whoever waits for it in another thread comes back at once."""
        self._closed = True
        response = self._response
        _shut(self._waiting if response is None else getattr(response, "connection", None))

    def _sent(self, connection: Any) -> None:
        """The request was sent, and the answer is waited for."""
        self._waiting = connection
        if self._closed:
            raise OSError("it is not wanted any more")


def _shut(connection: Any) -> None:
    """Ends a urllib3 connection under whoever reads from it."""
    sock = getattr(connection, "sock", None)
    if sock is not None:
        with suppress(OSError):  # it is gone already
            # Not the TLS socket's own shutdown, which takes its state away under the reader.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
