"""Marks the lines that launchers and stopped ranks print after another rank has failed. Pure.

Rules and examples: docs/design/presenting.md, "After the first failure".
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stepset.run_status import FailureKind, LogLine
from stepset.watch.diagnose import Observation, explains_others, may_be_aftermath

HOLD = 10.0
"""Seconds for which a line of another rank is held: it is omitted if the rank is stopped in this time."""
TRACEBACK_HOLD = 2.0
"""Seconds for which a traceback is held before a failure is known: a rank that has lost its peer may print its
traceback before the end of the peer is reported."""
TRACEBACK = "Traceback (most recent call last)"
_LINES, _CHARACTERS = 10_000, 1 << 22
"""The maximum number of lines that are held, and of their characters."""

_MPIRUN = "launcher"
_LAUNCHER = re.compile(rf"{_MPIRUN}\Z|node \d+\Z")


@dataclass(slots=True)
class _Attempt:
    """What is known of the current attempt."""

    ranks: set[str] = field(default_factory=set)  # those that have started
    pods: set[str] = field(default_factory=set)  # those that printed something before the first failure
    explained: dict[str, float] = field(default_factory=dict)  # ranks that failed with an error of their own -> when
    unexplained: dict[str, float] = field(default_factory=dict)  # ranks that failed first, without an error -> when
    completed: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    mpirun: str = ""  # the pod of mpirun, once it has printed something after the first failure

    @property
    def failed_first(self) -> set[str]:
        """The ranks whose failure no other one has caused."""
        return {*self.explained, *self.unexplained}

    @property
    def omits(self) -> bool:
        """Whether a first failure is known that explains the others."""
        if not self.explained:
            return False
        first = min(self.explained.values())
        return all(at > first for at in self.unexplained.values())

    def includes(self, pod: str, source: str) -> bool:
        """Whether a line that is printed after the first failure belongs to this attempt, and not to the next one.

        mpirun has a pod of its own, and prints nothing before a rank fails.
        """
        if source == _MPIRUN:
            self.mpirun = self.mpirun or pod
            return pod == self.mpirun
        return pod in self.pods


class Aftermath:
    """The ends of one attempt's ranks, and the lines that are held until it is known why their ranks end."""

    def __init__(self) -> None:
        self._attempt = _Attempt()
        self._held: deque[tuple[float, LogLine]] = deque()
        self._sources: Counter[str] = Counter()  # of held lines
        self._characters = 0

    def passes(self, pod: str, tracebacks: bool) -> bool:
        """Whether `line` returns each line of a pod unchanged; `tracebacks`: whether a line begins a traceback."""
        if self._attempt.explained:
            return False
        self._attempt.pods.add(pod)
        return not tracebacks and not self._held

    def line(self, pod: str, line: LogLine, now: float) -> list[LogLine]:
        """Returns the lines to deliver: this one, and earlier ones; `now` is monotonic, in seconds."""
        attempt, source = self._attempt, line.source
        if not attempt.explained:
            if source in attempt.ranks and (TRACEBACK in line.text or source in self._sources):
                return self._hold(line, now)
            if self._held and _LAUNCHER.match(source):
                return self._hold(line, now)
        elif attempt.omits and attempt.includes(pod, source):
            if _LAUNCHER.match(source):
                return [replace(each, aftermath=True) for each in (*self._release(source), line)]
            if source in attempt.ranks and source not in attempt.failed_first and source not in attempt.completed:
                return self._hold(line, now)
        return [*self._release(source), line]

    def event(self, pod: str, event: Mapping[str, Any]) -> list[LogLine]:
        """Records an agent's event about a rank, as `read_events` returns it; returns lines that it releases."""
        rank, name = event.get("rank"), event["event"]
        if rank is None:
            return []
        source = f"rank {rank}"
        if name == "started":
            again = source in self._attempt.ranks and self._attempt.explained
            over = self.end_attempt() if again else []
            self._attempt.pods.add(pod)
            self._attempt.ranks.add(source)
            return over
        if name == "exited":
            return self._exited(source, event)
        if name == "failed" and source in self._attempt.ranks:
            return self._failed(_observation(source, event))
        return []

    def due(self, now: float) -> list[LogLine]:
        """Returns the lines that were held long enough, and those above the limits."""
        found = []
        before = now - (HOLD if self._attempt.explained else TRACEBACK_HOLD)
        while self._held and (self._held[0][0] <= before or len(self._held) > _LINES or self._characters > _CHARACTERS):
            line = self._held.popleft()[1]
            self._count(line, -1)
            over = line.source in self._attempt.ended or bool(_LAUNCHER.match(line.source))
            found.append(self._marked(line, over))
        return found

    def end_attempt(self) -> list[LogLine]:
        """Forgets the attempt; returns the lines that are still held."""
        held = [self._marked(line, True) for _, line in self._held]
        self._attempt, self._characters = _Attempt(), 0
        self._held.clear()
        self._sources.clear()
        return held

    def _exited(self, source: str, event: Mapping[str, Any]) -> list[LogLine]:
        self._attempt.ended.add(source)
        if event.get("exit_code") == 0:
            self._attempt.completed.add(source)
            return self._release(source)
        # The event `failed` follows, but the traceback suffices, and other ranks fail at the same time.
        held = tuple(line.text for _, line in self._held if line.source == source)
        if not self._attempt.explained and explains_others(end := replace(_observation(source, event), tail=held)):
            return self._failed(end)
        return []

    def _failed(self, end: Observation) -> list[LogLine]:
        if explains_others(end):
            explained = self._attempt.explained
            explained[end.source] = min(end.at, explained.get(end.source, end.at))
        elif may_be_aftermath(end) or any(end.at > at for at in self._attempt.explained.values()):
            return []
        else:
            self._attempt.unexplained.setdefault(end.source, end.at)
        return self._release(end.source)

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
        """The line, marked if its rank has ended because another one failed."""
        return replace(line, aftermath=True) if ended and self._attempt.omits else line


def _observation(source: str, event: Mapping[str, Any]) -> Observation:
    kind = event.get("kind")
    return Observation(
        source,
        event.get("at", 0.0),
        exit_code=event.get("exit_code"),
        signal=event.get("signal"),
        error=event.get("error", ""),
        kind=FailureKind(kind) if kind in set(FailureKind) else None,
    )
