"""The event loop of synchronous callers: one thread per process, which the last caller ends."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import TypeAlias, TypeVar, TypeVarTuple

import anyio
from anyio.from_thread import BlockingPortal, BlockingPortalProvider

T = TypeVar("T")
Args = TypeVarTuple("Args")
ExcInfo: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]

_THREAD_END_TIMEOUT = 1.0
"""Seconds for which `EventLoop` waits for the system to end its thread."""
_TURN = 0.5
"""Seconds after which a waiting thread lets Python handle signals."""

_providers = [BlockingPortalProvider()]


def _reset_providers() -> None:
    _providers[:] = [BlockingPortalProvider()]


if hasattr(os, "register_at_fork"):
    # A child process has none of its parent's threads.
    os.register_at_fork(after_in_child=_reset_providers)


class EventLoop:
    """Keeps the event loop of synchronous callers running; the last caller that leaves ends its thread.

    A class, not a generator: the last caller that leaves waits for the remaining tasks, which must not happen during
    garbage collection.
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
    """Waits until the operating system has ended a thread that Python reports as ended (Linux).

    Until then the thread may hold locks of OpenSSL, which a child process that is forked at this moment never releases.
    """
    task, until = Path(f"/proc/self/task/{thread.native_id}"), time.monotonic() + _THREAD_END_TIMEOUT
    while task.exists() and time.monotonic() < until:
        time.sleep(0.0001)


def run_in_loop(function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
    """Calls an asynchronous function and blocks until it returns.

    An exception in the calling thread (Ctrl-C, Airflow's timeout) cancels the function and waits for its end.
    """
    with EventLoop() as portal:
        return _call(portal, function, *args)


def _call(portal: BlockingPortal, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
    future = portal.start_task_soon(function, *args)
    try:
        wait_in_turns(future)
        return future.result()
    except BaseException:
        future.cancel()
        wait([future])
        raise


def wait_in_turns(future: Future[T]) -> None:
    """Blocks until a task of the event loop has ended.

    Waits in turns of `_TURN` seconds: while the main thread waits for a lock, Python may handle neither of two signals
    in quick succession (stepset.signals).
    """
    while not future.done():
        wait([future], _TURN)


def iterate(make: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """Iterates over an asynchronous generator, which runs at most one item ahead of the caller.

    The generator that `make` returns runs in one task, to its end or until the caller stops iterating.
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
    """Yields the items that `produce` sends from a separate task, which ends with the generator.

    The argument of `produce` is a function that sends one item and returns once the item is received.
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
