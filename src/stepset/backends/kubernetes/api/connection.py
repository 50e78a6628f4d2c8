"""A client for synchronous callers: each call runs on the process's one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar, TypeVarTuple

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.config import ClientConfig, Namespace, load_config
from stepset.backends.kubernetes.api.portal import EventLoop, run_in_loop
from stepset.backends.kubernetes.api.replies import Reply

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Connection:
    """An API server and the credentials for it. May be used from several threads; `with` keeps connections open.

    `load` reads the configuration and may block. The constructor calls it, and raises BadInputError if the
    configuration cannot be used; the client calls it again when the server does not accept the credentials. Only
    functions that `call` runs may use `client`.
    """

    def __init__(self, load: Callable[[], ClientConfig]) -> None:
        async def reload() -> ClientConfig:
            return await asyncio.to_thread(load)

        config = load()
        self.client = Client(reload, config)
        self.server: str = config.server
        self.namespace: Namespace = config.namespace
        self._open: list[ExitStack] = []

    def __enter__(self) -> Connection:
        with ExitStack() as stack:
            portal = stack.enter_context(EventLoop())
            stack.enter_context(portal.wrap_async_context_manager(self.client))
            self._open.append(stack.pop_all())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.pop().close()

    def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Calls an asynchronous function that uses the client, and blocks until it returns."""

        async def opened() -> T:
            async with self.client:
                return await function(*args)

        return run_in_loop(opened)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Reply:
        """Reads an object or a list; raises as `Client.request` does."""
        return self.call(self.client.get, path, query)

    def patch(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Reply:
        """Merges fields into an object; raises as `Client.request` does."""
        return self.call(self.client.patch, path, body, query)


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """Returns a connection; sends nothing yet. Arguments and errors are those of `load_config`."""
    return Connection(lambda: load_config(kubeconfig, context))
