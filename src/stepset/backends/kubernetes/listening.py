"""Observers of a followed run: `ListenerObserver` calls a RunListener, `OutputStream` sends the output to a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVarTuple

import anyio

from stepset.backends.base import RunListener
from stepset.backends.kubernetes.logs.run_logs import PodOutput
from stepset.run_status import LogLine, RunStatus
from stepset.watch.lines import Joiner, log_lines

Args = TypeVarTuple("Args")


class ListenerObserver:
    """Calls a listener with states and the lines of `sources` (None: all), in a thread, because it may block."""

    def __init__(self, listener: RunListener | None, sources: frozenset[str] | None = None) -> None:
        self._listener, self._sources = listener, sources
        self._joiners: dict[str, Joiner] = {}
        self._thread = ThreadPoolExecutor(1, "stepset listener")

    async def __aenter__(self) -> ListenerObserver:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await asyncio.to_thread(self._thread.shutdown)

    async def on_output(self, output: PodOutput) -> None:
        """Calls the listener with the complete lines of an output."""
        if (listener := self._listener) is None:
            return
        joiner = self._joiners.setdefault(output.pod, Joiner())
        complete = log_lines(joiner.join(output.batch.lines))
        if lines := [line for line in complete if self._sources is None or line.source in self._sources]:
            await self._call(_deliver, listener, lines)

    async def on_status(self, status: RunStatus) -> None:
        """Calls the listener with a state."""
        if (listener := self._listener) is not None:
            await self._call(listener.on_status, status)

    async def _call(self, function: Callable[[*Args], None], *args: *Args) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


class OutputStream:
    """Passes the output of a run's pods to `send`, which returns once it is received; ignores the run's states."""

    def __init__(self, send: Callable[[PodOutput], Awaitable[None]]) -> None:
        self._send = send

    async def on_output(self, output: PodOutput) -> None:
        """Sends an output; returns once it is received."""
        await self._send(output)

    async def on_status(self, status: RunStatus) -> None:
        """Does nothing."""


def _deliver(listener: RunListener, lines: list[LogLine]) -> None:
    for line in lines:
        listener.on_line(line)
