"""Converts the output of a run's pods into the lines that a listener receives. Uses no I/O and no clock.

Parts of lines are joined. The lines that launchers and stopped ranks print after a rank has failed, or while the run is
being stopped, are marked. The same applies to a traceback that another failed rank has printed, and to what torchrun
prints at its exit barrier after all ranks of its pod have exited with 0. Rules and examples:
docs/design/presenting.md, "After the first failure".
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stepset.run_status import LogLine
from stepset.watch.agent_events import observation_of, read_events
from stepset.watch.diagnose import Observation, error_of, has_lost_peer
from stepset.watch.lines import Batch, Joiner, OpenLine, log_lines, without_rank_mark

HOLD = 10.0
"""The number of seconds for which a line of a rank is held after another rank has failed. The line is omitted if its
rank is stopped in this time."""
TRACEBACK_HOLD = 2.0
"""The number of seconds for which a traceback is held if no failure is known yet. A rank that has lost its peer can
print its traceback before the failure of the peer is reported."""
TRACEBACK = "Traceback (most recent call last)"
_LINES, _CHARACTERS = 10_000, 1 << 22
"""The maximum number of lines that are held, and the maximum number of their characters."""

_MPIRUN = "launcher"
_LAUNCHER = re.compile(rf"{_MPIRUN}\Z|node \d+\Z")
TORCHRUN_STOPS = "death signal, shutting down workers"
"""Source: torch 1.9 to 2.15, torch/distributed/elastic/agent/server/api.py, `run`."""
_EXIT_BARRIER = re.compile(
    r"\[?[WE]\d{4} [^\]]*\b(?:TCPStore\.cpp|socket\.cpp|torch/distributed/elastic/)"
    r"|Exception raised from |frame #\d+: |<omitting python frames>|\s*\Z"
)
"""The lines that torchrun prints if another node leaves the exit barrier first. Source: torch 2.7 to 2.15, TCPStore.cpp
and torch/distributed/elastic/agent/server/api.py, `_exit_barrier`."""
_MARKS = (TRACEBACK.encode(), TORCHRUN_STOPS.encode())


@dataclass(slots=True)
class _Attempt:
    """The facts that are known about the current attempt."""

    ranks: set[str] = field(default_factory=set)  # the ranks that have started
    pods: set[str] = field(default_factory=set)  # the pods that printed something before the first failure
    # The time of each rank's failure. Failures that are consequences of another failure are not included.
    failed: dict[str, float] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)
    lost: list[Observation] = field(default_factory=list)  # the ranks that lost a peer while all ranks seemed to run
    places: dict[str, str] = field(default_factory=dict)  # the pod of each rank that runs or has failed
    unfinished: Counter[str] = field(default_factory=Counter)  # the number of ranks in `places` for each pod
    finished: set[str] = field(default_factory=set)  # the pods whose ranks have all exited with 0
    ended: set[str] = field(default_factory=set)
    mpirun: str = ""  # the pod of mpirun; empty until this pod prints something after the first failure
    stopped: set[str] = field(default_factory=set)  # the pods whose launcher has received a stop signal
    tracebacks: set[tuple[str, ...]] = field(default_factory=set)  # the lines of the failed ranks' tracebacks

    def includes(self, pod: str, source: str) -> bool:
        """Returns whether a line after the first failure belongs to this attempt. If not, it belongs to the next one.

        mpirun runs in a pod of its own. This pod prints nothing before a rank fails.
        """
        if source == _MPIRUN:
            self.mpirun = self.mpirun or pod
            return pod == self.mpirun
        return pod in self.pods

    def start(self, pod: str, source: str) -> None:
        """Records that a rank has started in a pod."""
        self.pods.add(pod)
        self.ranks.add(source)
        self._leave(source)
        self.places[source] = pod
        self.unfinished[pod] += 1
        self.completed.discard(source)
        self.finished.discard(pod)

    def complete(self, source: str) -> None:
        """Records that a rank has exited with 0."""
        self.completed.add(source)
        pod = self._leave(source)
        if pod is not None and not self.unfinished[pod]:
            self.finished.add(pod)

    def _leave(self, source: str) -> str | None:
        """Removes the pod of a rank from `places`, and returns the pod."""
        pod = self.places.pop(source, None)
        if pod is not None:
            self.unfinished[pod] -= 1
        return pod


class RunLines:
    """The lines of all pods of one run.

    After a failure, a line is held until it is known why its rank exited.
    """

    def __init__(self) -> None:
        self._joiners: dict[str, Joiner] = {}
        self._attempt = _Attempt()
        self._held: deque[tuple[float, LogLine]] = deque()
        self._sources: Counter[str] = Counter()  # the number of held lines of each source
        self._characters = 0
        self._stopping = False

    def feed(self, pod: str, batch: Batch, now: float, *, known: bool = False) -> Iterator[LogLine | OpenLine]:
        """Processes a chunk of a pod's output. Yields the lines to deliver, and the states of incomplete lines.

        Args:
            pod: identifies the pod.
            now: the current time of a monotonic clock, in seconds.
            known: whether another process has already delivered the chunk. If True, the lines are not yielded.
        """
        at = 0
        for position, item in batch.between:
            yield from self._lines(pod, batch, at, position, now, known)
            at = position
            if isinstance(item, OpenLine):
                if not known:
                    yield item
            else:
                for event in read_events([item]):
                    yield from self._event(pod, event)
        yield from self._lines(pod, batch, at, len(batch.lines), now, known)
        yield from self.due(now)

    def due(self, now: float) -> list[LogLine]:
        """Returns the lines that were held long enough. If too many lines are held, also returns the oldest lines."""
        found = []
        before = now - (HOLD if self._ending else TRACEBACK_HOLD)
        while self._held and (self._held[0][0] <= before or len(self._held) > _LINES or self._characters > _CHARACTERS):
            line = self._held.popleft()[1]
            self._count(line, -1)
            launcher = _LAUNCHER.match(line.source) and (self._attempt.failed or self._stopping)
            found.append(self._marked(line, line.source in self._attempt.ended or bool(launcher)))
        return found

    def stop(self) -> None:
        """Records that the run is being stopped although no rank has failed."""
        self._stopping = True

    def end_attempt(self) -> list[LogLine]:
        """Forgets the attempt, and returns the lines that are still held."""
        held = [self._marked(line, True) for _, line in self._held]
        self._attempt, self._characters = _Attempt(), 0
        self._held.clear()
        self._sources.clear()
        return held

    def _lines(self, pod: str, batch: Batch, start: int, end: int, now: float, known: bool) -> Iterator[LogLine]:
        if start == end:
            return
        lines = batch.lines if end - start == len(batch.lines) else batch.lines[start:end]
        complete = log_lines(self._joiners.setdefault(pod, Joiner()).join(lines))
        if known:
            deque(complete, maxlen=0)
        elif self._passes(pod, batch.shown):
            yield from complete
        else:
            for line in complete:
                yield from self._line(pod, line, now)

    @property
    def _ending(self) -> bool:
        """Whether ranks are expected to exit, because another rank has failed or because the run is being stopped."""
        return bool(self._attempt.failed or self._attempt.stopped) or self._stopping

    def _passes(self, pod: str, output: bytes) -> bool:
        """Returns whether the method `_line` would return every line of `output` at once and unchanged."""
        if not self._attempt.failed:
            self._attempt.pods.add(pod)
        if pod in self._attempt.finished:
            return False
        return not (self._ending or self._held or any(mark in output for mark in _MARKS))

    def _line(self, pod: str, line: LogLine, now: float) -> list[LogLine]:
        """Returns the lines to deliver: `line`, earlier lines that were held, or both.

        `now` is the time of a monotonic clock, in seconds.
        """
        attempt, source = self._attempt, line.source
        if attempt.failed and not attempt.includes(pod, source):
            return [*self._release(source), line]
        if _LAUNCHER.match(source):
            if TORCHRUN_STOPS in line.text:
                attempt.stopped.add(pod)
            at_exit = pod in attempt.finished and _EXIT_BARRIER.match(line.text)
            if attempt.failed or self._stopping or pod in attempt.stopped or at_exit:
                return [each._replace(aftermath=True) for each in (*self._release(source), line)]
            if self._held and not attempt.stopped:
                return self._hold(line, now)
        elif (source in attempt.ranks and source not in attempt.completed and source not in attempt.failed) and (
            attempt.failed or TRACEBACK in line.text or source in self._sources
        ):
            return self._hold(line, now)
        return [*self._release(source), line]

    def _event(self, pod: str, event: Mapping[str, Any]) -> list[LogLine]:
        """Records an agent's event about a rank, as `read_events` returns it.

        Returns the held lines that can be delivered after this event.
        """
        rank, name = event.get("rank"), event["event"]
        if rank is None:
            return []
        source = f"rank {rank}"
        if name == "started":
            again = source in self._attempt.ranks and self._ending
            over = self.end_attempt() if again else []
            self._attempt.start(pod, source)
            return over
        if name == "exited":
            return self._exited(source, event)
        if name == "failed" and source in self._attempt.ranks:
            return self._failed(observation_of(event, source))
        return []

    def _exited(self, source: str, event: Mapping[str, Any]) -> list[LogLine]:
        self._attempt.ended.add(source)
        if event.get("exit_code") == 0:
            self._attempt.complete(source)
            lost, self._attempt.lost = self._attempt.lost, []
            return [*self._release(source), *(line for end in lost for line in self._failed(end))]
        # The event `failed` follows later, and other ranks can fail in the meantime. Therefore the failure is recorded
        # now, if the held lines contain an error.
        held = tuple(line.text for _, line in self._held if line.source == source)
        end = replace(observation_of(event, source), tail=held)
        return self._failed(end) if end.signal is None and error_of(end) else []

    def _failed(self, end: Observation) -> list[LogLine]:
        """Records a failure of a rank. There is no event `failed` for a rank that its launcher has stopped."""
        attempt = self._attempt
        killed = end.signal is not None and not error_of(end)
        if killed and (self._stopping or any(end.at > at for at in attempt.failed.values())):
            return []
        if has_lost_peer(end) and (attempt.failed or not attempt.completed):
            if not attempt.failed:  # a peer that exits with 0 is the cause, and its exit can be reported later
                attempt.lost.append(end)
            return []
        attempt.failed[end.source] = min(end.at, attempt.failed.get(end.source, end.at))
        texts = self._texts()
        text = texts.get(end.source, [])
        if not text or TRACEBACK not in text[0]:
            return self._release(end.source)
        # A rank that has printed the same traceback earlier can exit later. The diagnosis names this rank.
        first = "" if tuple(text) in attempt.tracebacks else next(each for each in texts if texts[each] == text)
        attempt.tracebacks.add(tuple(text))
        same = [] if first == end.source else [line._replace(aftermath=True) for line in self._release(end.source)]
        return [*self._release(first), *same]

    def _texts(self) -> dict[str, list[str]]:
        """Returns the texts of the held lines of each source. The source whose first line is the oldest comes first."""
        found: dict[str, list[str]] = {}
        for _, line in self._held:
            found.setdefault(line.source, []).append(without_rank_mark(line.source, line.text))
        return found

    def _release(self, source: str) -> list[LogLine]:
        """Returns the held lines of a rank that was not stopped."""
        if source not in self._sources:
            return []
        released = [line for _, line in self._held if line.source == source]
        self._held = deque(each for each in self._held if each[1].source != source)
        for line in released:
            self._count(line, -1)
        return released

    def _hold(self, line: LogLine, now: float) -> list[LogLine]:
        self._held.append((now, line))
        self._count(line, 1)
        return self.due(now)

    def _count(self, line: LogLine, step: int) -> None:
        self._characters += step * len(line.text)
        self._sources[line.source] += step
        if not self._sources[line.source]:
            del self._sources[line.source]

    def _marked(self, line: LogLine, ended: bool) -> LogLine:
        """Returns the line. If its rank has exited and ranks were expected to exit, the returned line is marked."""
        return line._replace(aftermath=True) if ended and self._ending else line
