"""`RunLogs`, which follows the logs of all pods of a run at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pod_log import READ_TIMEOUT, PodLog
from stepset.backends.kubernetes.logs.pods import LogPod, Ranks, may_hold
from stepset.errors import InfrastructureError
from stepset.watch.lines import Batch, Joiner
from stepset.watch.retries import Retries

_log = logging.getLogger(__name__)

_FINISH_CHECK_INTERVAL = 0.5
"""The interval in seconds at which `RunLogs.finish` checks whether the readers have finished."""


@dataclass(frozen=True, slots=True)
class PodOutput:
    """Output of a pod.

    `position` is the position in the pod's log after this output. If another process has consumed the output,
    `position` is None. `beside` is True if the pod has no lines of the needed sources (`RunLogs.read_all`). `joiner`
    contains the parts of lines that continue in the next output of the pod.
    """

    pod: str
    batch: Batch
    position: Mapping[str, Any] | None
    beside: bool = False
    joiner: Joiner = field(default_factory=Joiner)

    def complete_lines(self) -> Iterator[tuple[str, bytes]]:
        """Yields the source and the text of each line that is complete after this output. Call this method once."""
        return self.joiner.join(self.batch.lines)


Consumer = Callable[[PodOutput], Awaitable[None]]


class RunLogs:
    """Follows the logs of a run's pods until `close` is called.

    Args:
        consume: an asynchronous function that receives the output of the pods. While one call runs, all readers wait.
        sources: the sources whose lines are needed. Only the logs of pods that may contain such lines are read. None
            means all sources. If the set is empty, no log is read. When an agent reports a rank without progress, all
            logs are read from then on, because they show which rank this rank waits for.
        ranks: the ranks of each group's pods, from the workload's annotation.
        positions: a mapping from a pod's uid to the position up to which another process has consumed the pod's log.
        connections: limits the number of logs that are read at the same time; default: a limit for this run only.
        read_timeout: a number of seconds. If the server sends no byte for this time, the log is requested again.

    Attributes:
        turn: a lock that is held while the consumer receives output.
        error: the last error of a log reader whose retries are exhausted; None if there is no such reader.
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
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        self._namespaced, self._consume = namespaced, consume
        self._sources, self._ranks, self._read_timeout = sources, ranks or {}, read_timeout
        self._needed = sources
        self._positions = {uid: dict(each) for uid, each in (positions or {}).items()}
        self._connections = connections or LogConnections()
        self.turn = asyncio.Lock()
        self._readers: dict[str, PodLog] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: set[str] = set()
        self._left_out: dict[str, LogPod] = {}  # pods whose logs are not needed
        self._still_running: dict[str, LogPod] = {}
        self._finishing = self._allowed = False
        self._idle_since = 0.0
        self._problems: list[str] = []
        self.error: InfrastructureError | None = None
        self._consumer_error: Exception | None = None

    def see(self, pods: Iterable[LogPod]) -> None:
        """Receives the current states of pods. This object reads the log of each pod as soon as the log exists."""
        for pod in pods:
            self._see(pod)

    def read_all(self) -> None:
        """Reads the logs of all pods from now on, also of pods that have no line of the needed sources."""
        left_out, self._left_out, self._sources = self._left_out, {}, None
        for pod in left_out.values():
            if not pod.deleted:
                self._ended.discard(pod.uid)
                self._see(pod)

    def reconnect(self) -> None:
        """Requests every log again. Call this method if the connections may be dead."""
        for reader in self._readers.values():
            reader.reconnect()

    async def finish(self, timeout: float) -> bool:
        """Waits until the consumer has received all current lines. Returns whether all logs were read completely.

        If no output arrives for `timeout` seconds, this method stops waiting. The time in which `consume` runs is not
        counted.
        """
        self._finishing, self._idle_since = True, asyncio.get_running_loop().time()
        for reader in self._readers.values():
            reader.finish()
        while self._tasks and (self.turn.locked() or asyncio.get_running_loop().time() - self._idle_since < timeout):
            await asyncio.wait(self._tasks.values(), timeout=min(_FINISH_CHECK_INTERVAL, timeout))
            for reader in self._readers.values():
                reader.request_again_if_silent()
        late = [reader.pod.name for reader in self._readers.values()]
        self._problems += [f"pod {name}: its last lines were not received within {timeout:.0f} s" for name in late]
        return not self._problems

    async def close(self) -> None:
        """Stops all readers."""
        self._finishing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def problems(self) -> tuple[str, ...]:
        """The reasons why some logs could not be read completely, one line for each."""
        return tuple(self._problems)

    @property
    def positions(self) -> dict[str, dict[str, Any]]:
        """A mapping from a pod's uid to the position up to which the pod's log was consumed.

        The positions are plain data. Another process can pass the mapping to `RunLogs` to read only later lines.
        """
        return dict(self._positions)

    def _see(self, pod: LogPod) -> None:
        reader = self._readers.get(pod.uid)
        if reader is not None:
            reader.see(pod)
            if pod.deleted and pod.alive:
                self._still_running[pod.uid] = pod
        elif pod.uid in self._ended:
            self._forget_deleted(pod)
            if pod.uid in self._left_out:
                self._left_out[pod.uid] = pod
        elif pod.started and not self._finishing:
            if may_hold(pod, self._sources, self._ranks):
                self._start(pod)
            else:
                self._ended.add(pod.uid)
                self._left_out[pod.uid] = pod

    def _forget_deleted(self, pod: LogPod) -> None:
        if pod.deleted:  # the log of a deleted pod cannot be read again
            self._positions.pop(pod.uid, None)
            self._left_out.pop(pod.uid, None)

    def _start(self, pod: LogPod) -> None:
        # A pod that was deleted by force may continue to run, for example on a lost node. Once a new pod has the same
        # index, the lines of the deleted pod no longer belong to the run.
        for uid, old in self._still_running.items():
            if (old.group, old.index) == (pod.group, pod.index) and uid in self._tasks:
                self._tasks[uid].cancel()

        beside, joiner = not may_hold(pod, self._needed, self._ranks), Joiner()

        async def consume(batch: Batch, position: Mapping[str, Any] | None) -> None:
            async with self.turn:
                try:
                    await self._consume(PodOutput(pod.uid, batch, position, beside, joiner))
                except Exception as error:
                    self._consumer_error = error
                    raise
                if position is not None:
                    self._positions[pod.uid] = dict(position)
                self._idle_since = asyncio.get_running_loop().time()
            if self._left_out and any(event["event"] == "stalled" for event in batch.events):
                self.read_all()

        def make_reader(pod: LogPod) -> PodLog:
            return PodLog(
                self._namespaced,
                pod,
                consume,
                self._connections,
                resume=self._positions.get(pod.uid),
                read_timeout=self._read_timeout,
                allowed=self._allowed or any(each.allowed for each in self._readers.values()),
            )

        self._readers[pod.uid] = make_reader(pod)
        self._tasks[pod.uid] = task = asyncio.create_task(self._read(pod.uid, make_reader), name=f"log of {pod.name}")
        task.add_done_callback(lambda done: self._done(pod, done))

    async def _read(self, uid: str, make_reader: Callable[[LogPod], PodLog]) -> None:
        """Reads a log completely. After an unexpected error, starts a new reader at the last position."""
        retries, position = Retries(), self._positions.get(uid)
        while True:
            reader = self._readers[uid]
            try:
                await reader.run()
                return
            except Exception as error:
                if error is self._consumer_error:
                    raise  # a new reader would pass the same lines to the consumer again
                if position != self._positions.get(uid):
                    retries.succeeded()
                    position = self._positions.get(uid)
                pause, name = retries.failed(), reader.pod.name
                problem = f"pod {name}: reading its log failed unexpectedly: {repr(error)[:200]}"
                _log.warning(problem, exc_info=True)
                if problem not in self._problems:
                    self._problems.append(problem)
                if retries.exhausted:
                    self.error = InfrastructureError(problem)
                    return
            await asyncio.sleep(pause)
            self._readers[uid] = make_reader(self._readers[uid].pod)
            if self._finishing:
                self._readers[uid].finish()

    def _done(self, pod: LogPod, task: asyncio.Task[None]) -> None:
        reader = self._readers.pop(pod.uid)
        del self._tasks[pod.uid]
        self._ended.add(pod.uid)
        self._allowed = self._allowed or reader.allowed
        self._forget_deleted(reader.pod)
        if reader.problem is not None:
            self._problems.append(str(reader.problem))
        if not task.cancelled() and (error := task.exception()) is not None:
            self._problems.append(f"pod {pod.name}: its log cannot be read: {error!r}")
