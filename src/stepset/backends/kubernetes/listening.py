"""`Observer`, which receives the output and states of a followed run, and two subclasses.

`ListenerObserver` calls a RunListener. `OutputStream` passes the output to a function.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVarTuple

import anyio

from stepset.backends.base import RunListener, pass_line
from stepset.backends.kubernetes.logs.run_logs import PodOutput
from stepset.run_status import LogLine, RunStatus
from stepset.watch.lines import OpenLine
from stepset.watch.run_lines import RunLines

Args = TypeVarTuple("Args")


class Observer:
    """Receives a run's output and states, one call at a time. Log readers wait until each call has returned.

    The follower enters the context of the observer before the first call, and leaves the context after the last call.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Waits until the observer has processed each call."""

    async def on_output(self, output: PodOutput) -> None:
        """Receives log lines of a pod."""

    async def on_status(self, status: RunStatus) -> None:
        """Receives the run's state after each change, and the final state after the last line."""

    async def on_tick(self) -> None:
        """Is called after each computation of the state, even if the state has not changed."""


class ListenerObserver(Observer):
    """Calls a listener with the states of a run and with the log lines of the run.

    `sources` are the sources whose lines the listener receives. None means all sources. The listener is called in a
    separate thread, because the listener may block.
    """

    def __init__(self, listener: RunListener | None, sources: frozenset[str] | None = None) -> None:
        self._listener, self._sources = listener, sources
        self._lines = RunLines()
        self._thread = ThreadPoolExecutor(1, "stepset listener")

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await asyncio.to_thread(self._thread.shutdown)

    async def on_output(self, output: PodOutput) -> None:
        """Calls the listener with the complete lines of an output."""
        await self._deliver(self._lines.feed(output.pod, output.batch, time.monotonic()))

    async def on_status(self, status: RunStatus) -> None:
        """Calls the listener with a state."""
        if status.phase.final:
            await self._deliver(self._lines.end_attempt())
        if (listener := self._listener) is not None:
            await self._call(listener.on_status, status)

    async def on_tick(self) -> None:
        """Calls the listener with the delayed lines that are now due (`RunLines.due`)."""
        await self._deliver(self._lines.due(time.monotonic()))

    async def _deliver(self, lines: Iterable[LogLine | OpenLine]) -> None:
        wanted = [line for line in lines if self._sources is None or line.source in self._sources]
        if wanted and self._listener is not None:
            await self._call(_deliver, self._listener, wanted)

    async def _call(self, function: Callable[[*Args], None], *args: *Args) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


class OutputStream(Observer):
    """Passes the output of a run's pods to the function `send`."""

    def __init__(self, send: Callable[[PodOutput], Awaitable[None]]) -> None:
        self._send = send

    async def on_output(self, output: PodOutput) -> None:
        """Passes an output to `send`, and waits until `send` returns. Ignores output of pods that are not needed."""
        if not output.beside:
            await self._send(output)


def _deliver(listener: RunListener, lines: list[LogLine | OpenLine]) -> None:
    for line in lines:
        pass_line(listener, line)
