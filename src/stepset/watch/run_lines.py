"""A run's lines as its listener receives them: parts joined, and marked if they follow another rank's failure. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from stepset.run_status import LogLine
from stepset.watch.aftermath import TRACEBACK, Aftermath
from stepset.watch.agent_events import read_events
from stepset.watch.lines import Batch, Joiner, OpenLine, log_lines


class RunLines:
    """The lines of all pods of one run."""

    def __init__(self) -> None:
        self._joiners: dict[str, Joiner] = {}
        self._aftermath = Aftermath()
        self._tracebacks = False

    def feed(self, pod: str, batch: Batch, now: float, *, known: bool = False) -> Iterator[LogLine | OpenLine]:
        """Yields the lines to deliver after a chunk of a pod's output, and states of incomplete lines.

        `pod` identifies the pod. `now` is monotonic, in seconds. `known` is whether another process has delivered the
        chunk: its lines are not yielded.
        """
        self._tracebacks = TRACEBACK.encode() in batch.shown
        at = 0
        for position, item in batch.between:
            yield from self._lines(pod, batch, at, position, now, known)
            at = position
            if isinstance(item, OpenLine):
                if not known:
                    yield item
            else:
                for event in read_events([item]):
                    yield from self._aftermath.event(pod, event)
        yield from self._lines(pod, batch, at, len(batch.lines), now, known)
        yield from self._aftermath.due(now)

    def due(self, now: float) -> list[LogLine]:
        """The lines that were held, and that no event has decided about in time."""
        return self._aftermath.due(now)

    def end_attempt(self) -> list[LogLine]:
        """The lines that were held until the end of an attempt; the next lines belong to the next attempt."""
        return self._aftermath.end_attempt()

    def _lines(self, pod: str, batch: Batch, start: int, end: int, now: float, known: bool) -> Iterator[LogLine]:
        if start == end:
            return
        lines = batch.lines if end - start == len(batch.lines) else batch.lines[start:end]
        complete = log_lines(self._joiners.setdefault(pod, Joiner()).join(lines))
        if known:
            deque(complete, maxlen=0)
        elif self._aftermath.passes(pod, self._tracebacks):
            yield from complete
        else:
            for line in complete:
                yield from self._aftermath.line(pod, line, now)
