"""`Connection`, a client for synchronous callers. All synchronous callers of a process share one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar, TypeVarTuple

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.config import ClientConfig, Namespace, load_config
from stepset.backends.kubernetes.api.portal import EventLoop, run_in_loop
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.option_names import Interface

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Connection:
    """Sends requests to an API server for synchronous callers.

    Several threads may use the same object. A `with` block keeps the connections open between calls. Only functions
    that are passed to `call` may use the attribute `client`.

    `load` is a function that reads the configuration. The function may block. The constructor calls `load`, and raises
    BadInputError if the configuration cannot be used. If the server does not accept the credentials, the client calls
    `load` again.
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

    def call(
        self, function: Callable[[*Args], Awaitable[T]], *args: *Args, turn: Callable[[], None] | None = None
    ) -> T:
        """Calls an asynchronous function, and blocks until the function returns. The function may use `client`.

        `turn` is the argument of `wait_in_turns`.
        """

        async def opened() -> T:
            async with self.client:
                return await function(*args)

        return run_in_loop(opened, turn=turn)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Reply:
        """Reads an object or a list. Raises the errors of `Client.request`."""
        return self.call(self.client.get, path, query)

    def patch(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Reply:
        """Merges fields into an object. Raises the errors of `Client.request`."""
        return self.call(self.client.patch, path, body, query)


def connect(kubeconfig: str | None = None, context: str | None = None, interface: Interface = "python") -> Connection:
    """Returns a connection without sending a request. `load_config` describes the arguments and errors."""
    return Connection(lambda: load_config(kubeconfig, context, interface))
