"""`Connection`, a client for synchronous callers, and the event loop of these callers.

All synchronous callers of a process share one event loop. The event loop runs in a separate thread. The last caller
that leaves the loop stops the thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack, aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, TypeVarTuple

import anyio
from anyio.from_thread import BlockingPortal, BlockingPortalProvider

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.config import ClientConfig, Namespace, load_config
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.option_names import Interface

T = TypeVar("T")
Args = TypeVarTuple("Args")
ExcInfo: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]

_THREAD_END_TIMEOUT = 1.0
"""The maximum number of seconds that `EventLoop` waits for the operating system to end the thread."""
_TURN = 0.5
"""The interval in seconds at which a waiting thread interrupts its wait. Then Python can handle signals."""

_providers = [BlockingPortalProvider()]


def _reset_providers() -> None:
    _providers[:] = [BlockingPortalProvider()]


if hasattr(os, "register_at_fork"):
    # A forked process needs a new event loop, because it does not contain the thread of the old event loop.
    os.register_at_fork(after_in_child=_reset_providers)


class EventLoop:
    """Keeps the event loop running while the `with` block runs. Synchronous callers use this event loop.

    The last caller that leaves the loop waits for the remaining tasks and stops the thread. If this context manager
    were a generator, garbage collection could close the generator, and would then wait for the tasks.
    """

    def __enter__(self) -> BlockingPortal:
        self._provider = _providers[0]
        portal = self._provider.__enter__()
        name = f"asyncio-portal-{id(portal):x}"
        self._thread = next((each for each in threading.enumerate() if each.name == name), None)
        return portal

    def __exit__(self, *exc: *ExcInfo) -> None:
        self._provider.__exit__(*exc)
        if self._thread is not None and not self._thread.is_alive():
            _wait_for_thread_end(self._thread)


def _wait_for_thread_end(thread: threading.Thread) -> None:
    """Waits until the operating system has ended a thread. Python may report the end of the thread earlier. Linux only.

    Until its end, the thread may hold locks of OpenSSL. If the process forks while the thread holds a lock, the
    child process never releases the lock.
    """
    task, until = Path(f"/proc/self/task/{thread.native_id}"), time.monotonic() + _THREAD_END_TIMEOUT
    while task.exists() and time.monotonic() < until:
        time.sleep(0.0001)


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

        An exception in the calling thread, such as KeyboardInterrupt or Airflow's timeout, cancels the function. When
        the function has stopped, this method raises the exception. `turn` is the argument of `wait_in_turns`.
        """

        async def opened() -> T:
            async with self.client:
                return await function(*args)

        with EventLoop() as portal:
            return _call(portal, opened, turn)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Reply:
        """Reads an object or a list. Raises the errors of `Client.request`."""
        return self.call(self.client.get, path, query)

    def patch(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Reply:
        """Merges fields into an object. Raises the errors of `Client.request`."""
        return self.call(self.client.patch, path, body, query)


def connect(kubeconfig: str | None = None, context: str | None = None, interface: Interface = "python") -> Connection:
    """Returns a connection without sending a request. `load_config` describes the arguments and errors."""
    return Connection(lambda: load_config(kubeconfig, context, interface))


def _call(portal: BlockingPortal, function: Callable[[], Awaitable[T]], turn: Callable[[], None] | None = None) -> T:
    future = portal.start_task_soon(function)
    try:
        wait_in_turns(future, turn)
        return future.result()
    except BaseException:
        future.cancel()
        wait([future])
        raise


def wait_in_turns(future: Future[T], turn: Callable[[], None] | None = None) -> None:
    """Blocks until a task of the event loop is done.

    This function interrupts its wait every `_TURN` seconds. Without these interruptions, Python may fail to handle two
    signals that arrive in quick succession while the main thread waits for a lock (stepset.signals). In each
    interruption, this function calls `turn` in the calling thread.
    """
    while not future.done():
        wait([future], _TURN)
        if turn is not None and not future.done():
            turn()


def iterate(make: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """Iterates over the asynchronous generator that `make` returns.

    The generator runs in one task. A buffer for one item connects the task to the caller. The task ends when the
    generator is exhausted or the caller stops iterating.
    """

    async def produce() -> None:
        async with send, aclosing(make()) as generator:
            async for item in generator:
                await send.send(item)

    send, receive = anyio.create_memory_object_stream[T](1)
    with EventLoop() as portal:
        future = portal.start_task_soon(produce)
        try:
            while True:
                try:
                    yield _call(portal, receive.receive)
                except anyio.EndOfStream:
                    future.result()
                    return
        finally:
            future.cancel()
            wait([future])
            receive.close()


async def items_of(produce: Callable[[Callable[[T], Awaitable[None]]], Awaitable[None]]) -> AsyncGenerator[T, None]:
    """Yields the items that `produce` sends.

    `produce` runs in a separate task. When the generator ends, the task is cancelled. The argument of `produce` is a
    function that sends one item. The function returns when the item is received.
    """
    send, receive = anyio.create_memory_object_stream[T]()

    async def run() -> None:
        async with send:
            await produce(send.send)

    task = asyncio.create_task(run())
    try:
        async with receive:
            async for item in receive:
                yield item
        await task
    finally:
        with anyio.CancelScope(shield=True):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
