"""Connections that can be given up by another thread while the answer's first byte is waited for.

Used by stream.py. A server sends nothing at all, not even a head, for the log of a pod that has not printed yet;
urllib3 says which connection an answer came on, but not at which one it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_thread = threading.local()


@contextmanager
def telling(sent: Callable[[Any], None]) -> Iterator[None]:
    """Tells on which connection an answer is waited for.

    Args:
        sent: is called with it, in this thread, when a request has been sent; what it raises ends the request.
    """
    _thread.sent = sent
    try:
        yield
    finally:
        _thread.sent = None


def tell(pool_manager: Any) -> None:
    """Lets a urllib3 PoolManager's connections heed `telling`; to be called before it is used."""
    pool_manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


def _tell(connection: Any) -> None:
    sent = getattr(_thread, "sent", None)
    if sent is not None:
        sent(connection)


class _Connection(HTTPConnection):
    def getresponse(self, *args: Any, **options: Any) -> Any:
        _tell(self)
        return super().getresponse(*args, **options)


class _SecureConnection(HTTPSConnection):
    def getresponse(self, *args: Any, **options: Any) -> Any:
        _tell(self)
        return super().getresponse(*args, **options)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection
