"""The agents' output: which ranks started and ended, failures, last lines, progress, the result.

It only adds details: a status is correct without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.unstructured import integer
from stepset.watch.diagnose import TAIL
from stepset.watch.lines import Batch, merge_progress
from stepset.watch.state import Progress

_LINE = 1000
"""Bytes kept of a line."""
_PRUNE_ABOVE = 64
"""Number of pods from which `prune` drops reports."""


@dataclass(slots=True)
class RankReport:
    """The agent's events about one rank."""

    starts: int = 0
    ended: Mapping[str, Any] | None = None  # the event with `exit_code` or `signal`, and `at`; None while it runs
    failed: Mapping[str, Any] | None = None  # the event with the reason of its failure


@dataclass(slots=True)
class PodReport:
    """One pod's output."""

    ranks: dict[int, RankReport] = field(default_factory=dict)  # rank -> its report
    failed: Mapping[str, Any] | None = None  # a failure of the pod, not of a rank
    missing: tuple[str, ...] = ()  # peers that the agent waits for
    result: tuple[Any, ...] = ()  # rank 0's, in a tuple because it may be None
    tails: dict[str, deque[bytes]] = field(default_factory=dict)  # source -> its last lines

    def tail(self, source: str) -> tuple[str, ...]:
        """The last lines of a source."""
        return tuple(line.decode("utf-8", "replace") for line in self.tails.get(source, ()))

    def last_line(self, source: str) -> str:
        """The last line of a source."""
        lines = self.tails.get(source)
        return lines[-1].decode("utf-8", "replace") if lines else ""


class Reports:
    """The output of one run's agents, by pod uid, which separates the attempts."""

    def __init__(self) -> None:
        self._pods: dict[str, PodReport] = {}
        self._prune_above = _PRUNE_ABOVE
        self.progress: Progress | None = None

    def of(self, pod: str) -> PodReport | None:
        return self._pods.get(pod)

    def see(self, pod: str, batch: Batch) -> None:
        """Processes a chunk of a pod's log; `pod` is the pod's uid."""
        report = self._pods.setdefault(pod, PodReport())
        tails = report.tails
        for head, text in batch.lines:
            tail = tails.get(head.source)
            if tail is None:
                tail = tails[head.source] = deque(maxlen=TAIL)
            tail.append(text)
        if batch.lines:
            # Cut only the lines that are kept.
            for tail in tails.values():
                for position, line in enumerate(tail):
                    if len(line) > _LINE:
                        tail[position] = line[:_LINE]
        for progress in batch.progress:
            self.progress = merge_progress(self.progress, progress)
        for event in batch.events:
            _take(report, event)

    def prune(self, objects: RunObjects) -> None:
        """Drops the reports of pods that no status mentions, to bound the memory of a run with many restarts.

        The caller adds a pod to `objects` before it reads the pod's log.
        """
        if len(self._pods) < self._prune_above:
            return
        kept = objects.known
        for pod in [pod for pod in self._pods if pod not in kept]:
            del self._pods[pod]
        self._prune_above = max(_PRUNE_ABOVE, 2 * len(self._pods))


def _take(report: PodReport, event: Mapping[str, Any]) -> None:
    name, rank = event.get("event"), integer(event, "rank")
    if name == "waiting":
        missing = event.get("missing")
        report.missing = tuple(str(each) for each in missing) if isinstance(missing, list) else ()
        return
    report.missing = ()
    if name == "result":
        report.result = (event.get("result"),)
    elif rank is not None:
        known = report.ranks.setdefault(rank, RankReport())
        if name == "started":
            # The launcher has restarted the rank: its earlier ends are not failures.
            known.starts += 1
            known.ended = known.failed = None
        elif name == "exited":
            known.ended = event
        elif name == "failed":
            known.failed = event
    elif name == "failed":
        report.failed = event
