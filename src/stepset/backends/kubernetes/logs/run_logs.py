"""Follows the logs of a run's pods at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pod_log import QUIET, PodLog
from stepset.backends.kubernetes.logs.pods import LogPod, Ranks, may_hold
from stepset.watch.lines import Batch

_HURRY = 0.5
"""Seconds between two checks of readers that must finish."""


@dataclass(frozen=True, slots=True)
class PodOutput:
    """Output of a pod up to `position` in its log; None: another process has consumed it already."""

    pod: str
    batch: Batch
    position: Mapping[str, Any] | None


Consumer = Callable[[PodOutput], Awaitable[None]]


class RunLogs:
    """Follows the logs of a run's pods; `close` ends it.

    Args:
        consume: receives the pods' output, one call at a time; while it runs, every reader waits.
        sources: only pods that may hold lines of these are read; None: all; empty: none.
        ranks: the ranks that each group's pods hold, as the workload states.
        positions: pod uid -> the position up to which another process has consumed its log.
        connections: limits how many logs are read at the same time; default: a limit of its own.
        quiet: seconds without a byte after which a log is requested again.
    """

    def __init__(
        self,
        namespaced: NamespacedClient,
        consume: Consumer,
        *,
        sources: frozenset[str] | None = None,
        ranks: Ranks | None = None,
        positions: Mapping[str, Mapping[str, Any]] | None = None,
        connections: LogConnections | None = None,
        quiet: float = QUIET,
    ) -> None:
        self._namespaced, self._consume = namespaced, consume
        self._sources, self._ranks, self._quiet = sources, ranks or {}, quiet
        self._positions = {uid: dict(each) for uid, each in (positions or {}).items()}
        self._connections = connections or LogConnections()
        self._turn = asyncio.Lock()
        self._readers: dict[str, PodLog] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: set[str] = set()
        self._still_running: dict[str, LogPod] = {}
        self._finishing = self._allowed = False
        self._idle_since = 0.0
        self._problems: list[str] = []

    def see(self, pods: Iterable[LogPod]) -> None:
        """Updates pods; the log of a pod is read as soon as it exists."""
        for pod in pods:
            self._see(pod)

    def reconnect(self) -> None:
        """Requests every log again, because their connections may be dead."""
        for reader in self._readers.values():
            reader.reconnect()

    async def finish(self, timeout: float) -> bool:
        """Waits until all current lines are consumed; returns whether all logs were read.

        Gives up after `timeout` seconds without output; the time that the consumer takes does not count.
        """
        self._finishing, self._idle_since = True, _now()
        for reader in self._readers.values():
            reader.finish()
        while self._tasks and (self._turn.locked() or _now() - self._idle_since < timeout):
            await asyncio.wait(self._tasks.values(), timeout=min(_HURRY, timeout))
            for reader in self._readers.values():
                reader.hurry()
        late = [reader.pod.name for reader in self._readers.values()]
        self._problems += [f"pod {name}: its last lines were not received within {timeout:.0f} s" for name in late]
        return not self._problems

    async def close(self) -> None:
        """Ends all readers."""
        self._finishing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why some logs could not be read to their end, each in one line."""
        return tuple(self._problems)

    @property
    def positions(self) -> dict[str, dict[str, Any]]:
        """Pod uid -> the position up to which its log was consumed, as plain data for another process to resume."""
        return dict(self._positions)

    def _see(self, pod: LogPod) -> None:
        reader = self._readers.get(pod.uid)
        if reader is not None:
            reader.see(pod)
            if pod.deleted and pod.alive:
                self._still_running[pod.uid] = pod
        elif pod.started and not self._finishing and pod.uid not in self._ended:
            if may_hold(pod, self._sources, self._ranks):
                self._start(pod)
            else:
                self._ended.add(pod.uid)

    def _start(self, pod: LogPod) -> None:
        # A pod that was deleted by force may continue to run, for example on a lost node. Its lines no longer belong to
        # the run once another pod replaces it.
        for uid, old in self._still_running.items():
            if (old.group, old.index) == (pod.group, pod.index) and uid in self._tasks:
                self._tasks[uid].cancel()

        async def consume(batch: Batch, position: Mapping[str, Any] | None) -> None:
            async with self._turn:
                await self._consume(PodOutput(pod.uid, batch, position))
                if position is not None:
                    self._positions[pod.uid] = dict(position)
                self._idle_since = _now()

        reader = self._readers[pod.uid] = PodLog(
            self._namespaced,
            pod,
            consume,
            self._connections,
            resume=self._positions.get(pod.uid),
            quiet=self._quiet,
            allowed=self._allowed or any(each.allowed for each in self._readers.values()),
        )
        self._tasks[pod.uid] = task = asyncio.create_task(reader.run(), name=f"log of {pod.name}")
        task.add_done_callback(lambda done: self._done(pod, reader, done))

    def _done(self, pod: LogPod, reader: PodLog, task: asyncio.Task[None]) -> None:
        del self._readers[pod.uid], self._tasks[pod.uid]
        self._ended.add(pod.uid)
        self._allowed = self._allowed or reader.allowed
        if reader.problem is not None:
            self._problems.append(str(reader.problem))
        if not task.cancelled() and (error := task.exception()) is not None:
            self._problems.append(f"pod {pod.name}: its log cannot be read: {error!r}")


def _now() -> float:
    return asyncio.get_running_loop().time()
