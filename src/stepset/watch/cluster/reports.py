"""The agents' output: which ranks started and ended, failures, last lines, progress, the result.

It only adds details: a status is correct without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.run_status import Progress
from stepset.unstructured import LARGEST
from stepset.watch.agent_events import read_events
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.diagnose import TAIL
from stepset.watch.lines import TOO_MANY_METRICS, Batch, merge_progress
from stepset.watch.redacted_lines import KEPT, RedactedLines

_SOURCES, _SOURCES_OF_RUN = 2048, 16_384
"""The maximum number of sources, per pod and per run, whose last lines are kept; the first number also limits the
ranks per pod whose events are kept."""
_PRUNE_ABOVE = 64
"""The number of reports below which `prune` keeps all."""


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
    redacted: RedactedLines = field(default_factory=RedactedLines)

    def tail(self, source: str) -> tuple[str, ...]:
        """The last lines of a source, redacted."""
        return tuple(self.redacted.shown(source, line) for line in self.tails.get(source, ()))

    def last_line(self, source: str) -> str:
        """The last line of a source, redacted."""
        lines = self.tails.get(source)
        return self.redacted.shown(source, lines[-1]) if lines else ""


class Reports:
    """The output of one run's agents, by pod uid, which separates the attempts.

    Attributes:
        progress: the merged reports of the training code.
        notes: what was reported beyond the limits and is not kept.
    """

    def __init__(self) -> None:
        self._pods: dict[str, PodReport] = {}
        self._prune_above = _PRUNE_ABOVE
        self._sources = 0
        self.progress: Progress | None = None
        self.notes: tuple[str, ...] = ()

    def of(self, pod: str) -> PodReport | None:
        return self._pods.get(pod)

    def see(self, pod: str, batch: Batch) -> None:
        """Processes a chunk of a pod's log; `pod` is the pod's uid."""
        report = self._pods.setdefault(pod, PodReport())
        tails = report.tails
        for head, text in batch.lines:
            tail = tails.get(head.source)
            if tail is None:
                if len(tails) >= _SOURCES or self._sources >= _SOURCES_OF_RUN:
                    continue
                tail = tails[head.source] = deque(maxlen=TAIL)
                self._sources += 1
            tail.append(text)
        if batch.lines:
            # Cut only the lines that are kept.
            for tail in tails.values():
                for position, line in enumerate(tail):
                    if len(line) > KEPT:
                        tail[position] = line[:KEPT]
        for progress in batch.progress:
            self.progress = merge_progress(self.progress, progress)
            if not self.notes and progress.metrics.keys() - self.progress.metrics.keys():
                self.notes = (TOO_MANY_METRICS,)
        events = list(read_events(batch.events, LARGEST))
        report.redacted.see(events)
        for event in events:
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
        self._sources = sum(len(report.tails) for report in self._pods.values())
        self._prune_above = max(_PRUNE_ABOVE, 2 * len(self._pods))


def _take(report: PodReport, event: Mapping[str, Any]) -> None:
    name, rank = event["event"], event.get("rank")
    if name == "waiting":
        report.missing = event.get("missing", ())
        return
    report.missing = ()
    if name == "result":
        report.result = (event.get("result"),)
    elif rank is not None:
        known = report.ranks.get(rank)
        if known is None:
            if len(report.ranks) >= _SOURCES:
                return
            known = report.ranks[rank] = RankReport()
        if name == "started":
            # The launcher has restarted the rank: its earlier ends are not failures.
            known.starts += 1
            known.ended = known.failed = None
        elif name == "exited":
            known.ended = _end_of(event)
        elif name == "failed":
            known.failed = _end_of(event)
    elif name == "failed":
        report.failed = _end_of(event)


def _end_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of an event from which an end is diagnosed."""
    found = {name: event.get(name) for name in ("rank", "at", "exit_code", "signal", "kind")}
    return {**found, "error": event.get("error", "")[:KEPT]}
