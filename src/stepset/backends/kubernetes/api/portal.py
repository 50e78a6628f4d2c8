"""The event loop of synchronous callers: one thread per process, from the first call to the end of the last."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from typing import TypeVar, TypeVarTuple

import anyio
from anyio.from_thread import BlockingPortal, BlockingPortalProvider

T = TypeVar("T")
Args = TypeVarTuple("Args")

_providers = [BlockingPortalProvider()]


def _forget_the_parents_thread() -> None:
    _providers[:] = [BlockingPortalProvider()]


if hasattr(os, "register_at_fork"):
    # A child process has none of its parent's threads.
    os.register_at_fork(after_in_child=_forget_the_parents_thread)


@contextmanager
def event_loop() -> Iterator[BlockingPortal]:
    """Keeps the event loop of synchronous callers running; the last caller that leaves ends its thread."""
    with _providers[0] as portal:
        yield portal


def run_in_loop(function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
    """Calls an asynchronous function and blocks until it returns.

    An exception in the calling thread (Ctrl-C, Airflow's timeout) cancels the function and waits for its end.

    Args:
        function: what is called.
        args: its arguments.
    """
    with event_loop() as portal:
        return result_of(portal.start_task_soon(function, *args))


def result_of(future: Future[T]) -> T:
    """Blocks until a task of the event loop has ended, and returns its result; cancels it as `run_in_loop` does."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        wait([future])
        raise


def iterate(make: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """Iterates over what an asynchronous generator yields, at most one item ahead of the caller.

    Args:
        make: makes the generator; it is run, to its end or until the caller leaves, in one task.
    """

    async def produce() -> None:
        async with send:
            generator = make()
            try:
                async for item in generator:
                    await send.send(item)
            finally:
                await generator.aclose()

    send, receive = anyio.create_memory_object_stream[T](1)
    with ExitStack() as stack:
        portal = stack.enter_context(event_loop())
        future = portal.start_task_soon(produce)
        stack.callback(portal.call, receive.aclose)
        try:
            while True:
                try:
                    yield portal.call(receive.receive)
                except anyio.EndOfStream:
                    future.result()
                    return
        finally:
            future.cancel()
            wait([future])
