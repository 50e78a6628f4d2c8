"""Converts the output of a run's pods into the lines that a listener receives. Uses no I/O and no clock.

Parts of lines are joined, and lines that follow the failure of another rank are marked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from stepset.run_status import LogLine
from stepset.watch.aftermath import Aftermath
from stepset.watch.agent_events import read_events
from stepset.watch.lines import Batch, Joiner, OpenLine, log_lines


class RunLines:
    """The lines of all pods of one run."""

    def __init__(self) -> None:
        self._joiners: dict[str, Joiner] = {}
        self._aftermath = Aftermath()

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
                    yield from self._aftermath.event(pod, event)
        yield from self._lines(pod, batch, at, len(batch.lines), now, known)
        yield from self._aftermath.due(now)

    def due(self, now: float) -> list[LogLine]:
        """Returns the lines that were held for the maximum time.

        If too many lines are held, the method also returns the oldest held lines.
        """
        return self._aftermath.due(now)

    def stop(self) -> None:
        """Records that the run is being stopped although no rank has failed."""
        self._aftermath.stop()

    def end_attempt(self) -> list[LogLine]:
        """Returns the lines that were held until the end of an attempt. Later lines belong to the next attempt."""
        return self._aftermath.end_attempt()

    def _lines(self, pod: str, batch: Batch, start: int, end: int, now: float, known: bool) -> Iterator[LogLine]:
        if start == end:
            return
        lines = batch.lines if end - start == len(batch.lines) else batch.lines[start:end]
        complete = log_lines(self._joiners.setdefault(pod, Joiner()).join(lines))
        if known:
            deque(complete, maxlen=0)
        elif self._aftermath.passes(pod, batch.shown):
            yield from complete
        else:
            for line in complete:
                yield from self._aftermath.line(pod, line, now)
