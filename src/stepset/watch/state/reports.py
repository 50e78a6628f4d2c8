"""Collects the output of the agents: started and finished ranks, failures, last lines, progress and the result.

On a cluster, the output only adds details, and a status is correct without it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stepset.run_status import Progress, ProgressPoint, RunStatus
from stepset.unstructured import LARGEST
from stepset.watch.agent_events import checkpoint_of, read_events
from stepset.watch.diagnose import KEPT_LINES, TAIL
from stepset.watch.hangs.joins import JoinTimes, with_slow
from stepset.watch.hangs.stalled import StalledRanks, with_hang
from stepset.watch.lines import Batch
from stepset.watch.points import LIMIT, Thinned
from stepset.watch.present.sentences import alone_sentence, resume_sentence
from stepset.watch.redacted_lines import KEPT, RedactedLines
from stepset.watch.reported import SEVERAL_RANKS, TOO_MANY_METRICS, UNREAD_REPORT, Report, merge_report, undefined_note

_SOURCES, _SOURCES_OF_RUN = 2048, 16_384
"""The maximum number of sources whose last lines are kept: for one pod, and for the whole run. The first number is also
the maximum number of ranks of a pod whose events are kept."""
_EARLIER = 200
"""The maximum number of bytes of a line before the last TAIL lines. These lines are kept only to find a frame of a
traceback. A longer line is replaced by an empty one, because a part of a line cannot be redacted."""
_RECENT = 20
"""The maximum number of progress reports that `take_recent` returns."""
_PRUNE_ABOVE = 64
"""The number of pods up to which `prune` keeps all reports."""


@dataclass(frozen=True, slots=True)
class RankReport:
    """The agent's events about one rank."""

    starts: int = 0
    ended: Mapping[str, Any] | None = None  # the event that reports the exit of the rank; None while the rank runs
    failed: Mapping[str, Any] | None = None  # the event with the reason of the failure


@dataclass(slots=True)
class PodReport:
    """The output of one pod."""

    ranks: dict[int, RankReport] = field(default_factory=dict)  # rank -> its report
    failed: Mapping[str, Any] | None = None  # a failure of the whole pod instead of one particular rank
    missing: tuple[str, ...] = ()  # the peers that the agent waits for
    result: tuple[Any, ...] = ()  # the result of rank 0, in a tuple because the result may be None
    tails: dict[str, deque[bytes]] = field(default_factory=dict)  # source -> its last lines
    printed_at: dict[str, float] = field(default_factory=dict)  # source -> time of its last output, if known
    redacted: RedactedLines = field(default_factory=RedactedLines)

    def tail(self, source: str) -> tuple[str, ...]:
        """Returns the last lines of a source. Secrets in these lines are redacted."""
        return tuple(self.redacted.shown(source, line) for line in self.tails.get(source, ()))

    def last_line(self, source: str) -> str:
        """Returns the last line of a source. Secrets in this line are redacted."""
        lines = self.tails.get(source)
        return self.redacted.shown(source, lines[-1]) if lines else ""


NO_OUTPUT = PodReport()
"""The report of a pod that has printed nothing. Must not be changed."""


class Reports:
    """The output of the agents of one run, by the uid of the pod. Pods of different attempts have different uids.

    Attributes:
        progress: the merged progress reports of the training code.
        checkpoint: the checkpoint from which the last attempt continues, and the time at which it was written. None if
            there is no checkpoint.
        stalled: the evidence of ranks that make no progress.
        joins: when ranks have joined their last collectives.

    Args:
        keep_lines: whether the last lines of the ranks are kept. If only a part of the logs is read, the events about
            redacted lines may be missing. Then the lines must not be shown.
    """

    def __init__(self, *, keep_lines: bool = True) -> None:
        self._keep_lines = keep_lines
        self._pods: dict[str, PodReport] = {}
        self._prune_above = _PRUNE_ABOVE
        self._sources = 0
        self._recent: Thinned[Progress] = Thinned(_RECENT)
        self._points: Thinned[ProgressPoint] = Thinned(LIMIT)
        self._notes: dict[str, str] = {}
        # metric, or "" for reports that contain only a step -> the source that reported it first
        self._reporters: dict[str, str] = {}
        self.progress: Progress | None = None
        self.checkpoint: tuple[str, float] | None = None
        self.stalled = StalledRanks()
        self.joins = JoinTimes()

    @property
    def points(self) -> tuple[ProgressPoint, ...]:
        """The progress after each report, with the time of the report. The number of points is limited."""
        return self._points.items

    def of(self, pod: str) -> PodReport:
        """Returns the output of a pod. Returns NO_OUTPUT if there is none."""
        return self._pods.get(pod, NO_OUTPUT)

    def see(self, pod: str, batch: Batch) -> bool:
        """Processes a chunk of a pod's log. `pod` is the uid of the pod.

        Returns whether the chunk may change which ranks make no progress, or which ranks are slow.
        """
        report = self._pods.setdefault(pod, PodReport())
        tails = report.tails
        for source, texts in (batch.last_lines(KEPT_LINES) if self._keep_lines else {}).items():
            tail = tails.get(source)
            if tail is None:
                if len(tails) >= _SOURCES or self._sources >= _SOURCES_OF_RUN:
                    continue
                tail = tails[source] = deque(maxlen=KEPT_LINES)
                self._sources += 1
            tail.extend(texts)
            last = len(tail) - TAIL
            for position, line in enumerate(tail):
                if position < last:
                    if len(line) > _EARLIER:
                        tail[position] = b""
                elif len(line) > KEPT:
                    tail[position] = line[:KEPT]
        if batch.at is not None:
            for source in batch.printed():
                if source in report.printed_at or len(report.printed_at) < _SOURCES:
                    report.printed_at[source] = batch.at
        if batch.unread_report:
            self._notes.setdefault("unread", UNREAD_REPORT)
        for progress in batch.progress:
            self._report(progress, batch.at or 0.0)
        stalled, joined = self.stalled.see(pod, batch), self.joins.see(pod, batch)
        events = list(read_events(batch.events, LARGEST))
        report.redacted.see(events)
        for event in events:
            _take(report, event)
            self.checkpoint = checkpoint_of(event) or self.checkpoint
        return stalled or joined

    def _report(self, report: Report, at: float) -> None:
        before, self.progress = self.progress, merge_report(self.progress, report)
        if self.progress != before:
            self._points.add(ProgressPoint(at, self.progress))
        self._recent.add(self.progress)
        if report.problem:
            self._notes.setdefault("problem", report.problem)
        if report.undefined:
            self._notes.setdefault("undefined", undefined_note(report.undefined, self.progress.step))
        if report.progress.metrics.keys() - self.progress.metrics.keys():
            self._notes.setdefault("metrics", TOO_MANY_METRICS)
        if "ranks" not in self._notes and report.source.startswith(("rank ", "node ")):
            named = report.progress.metrics.keys() & self.progress.metrics.keys()
            only_step = report.progress.step is not None and not report.progress.metrics
            for name in [""] if only_step else named:
                if self._reporters.setdefault(name, report.source) != report.source:
                    self._notes["ranks"] = SEVERAL_RANKS

    def drop(self, pod: str) -> None:
        """Drops the reports of a pod."""
        self._pods.pop(pod, None)
        self.stalled.drop(pod)
        self.joins.drop(pod)

    def clear(self) -> None:
        """Drops the reports of all pods, because a new attempt begins. Keeps the progress."""
        self._pods.clear()
        self._sources = 0
        self._reporters.clear()
        self.stalled.clear()
        self.joins = JoinTimes()

    def placement(self, pods: Iterable[str]) -> dict[int, str]:
        """Returns the pod of each rank that has started. If a rank has moved to another pod, returns its last pod."""
        last: dict[int, tuple[float, str]] = {}
        for pod in pods:
            report = self._pods.get(pod)
            for rank, found in report.ranks.items() if report is not None else ():
                at = math.inf if found.ended is None else found.ended["at"] or 0.0
                if found.starts and at >= last.get(rank, (0.0, pod))[0]:
                    last[rank] = at, pod
        return {rank: pod for rank, (_, pod) in last.items()}

    def result(self, pods: Iterable[str]) -> tuple[Any, ...]:
        """Returns the result that one of these pods has printed, in a tuple. Returns () if there is none."""
        return next((report.result for pod in pods if (report := self._pods.get(pod)) and report.result), ())

    def with_hang_and_slow(self, status: RunStatus, pods: Mapping[str, str]) -> RunStatus:
        """Returns the status with its hang and its slow ranks. `pods` contains the key of each pod by its name."""
        evidence = self.stalled.of(status.ranks, pods) if self.stalled else {}
        return with_slow(with_hang(status, evidence), self.joins, pods)

    def take_recent(self) -> list[Progress]:
        """For each report that arrived since the last call, returns the merged progress up to this report.

        The oldest progress comes first.

        Returns at most _RECENT items.
        """
        recent, self._recent = self._recent, Thinned(_RECENT)
        return list(recent.items)

    def alone_note(self, pods: Iterable[str], world_size: int | None) -> str:
        """Returns a note if all ranks of a run succeeded and none had joined a process group. Otherwise returns ""."""
        ranks = [rank for pod in pods if pod in self._pods for rank in self._pods[pod].ranks.values()]
        ends = [rank.ended or {} for rank in ranks]
        alone = all(end.get("alone") and end.get("exit_code") == 0 for end in ends)
        return alone_sentence(len(ends)) if alone and len(ends) > 1 and len(ends) == world_size else ""

    def notes_of(self, created: float) -> tuple[str, ...]:
        """Returns notes about progress reports and about the checkpoint from which a run continues.

        There is at most one note for each kind of problem with progress reports.

        `created` is the time at which the run was created, in seconds since the epoch.
        """
        resumed = () if self.checkpoint is None else (resume_sentence(*self.checkpoint, created),)
        return (*self._notes.values(), *resumed)

    def prune(self, known: Callable[[], set[str]]) -> None:
        """Drops the reports of pods that no status mentions. This limits the memory for a run with many restarts.

        `known` returns the pods that a status may mention, and all pods whose logs are read.
        """
        if len(self._pods) < self._prune_above:
            return
        for pod in self._pods.keys() - known():
            self.drop(pod)
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
        if rank not in report.ranks and len(report.ranks) >= _SOURCES:
            return
        known = report.ranks.get(rank, RankReport())
        if name == "started":  # the launcher may have restarted the rank, whose earlier failures are ignored
            known = RankReport(known.starts + 1)
        elif name == "exited":
            known = replace(known, ended=_end_of(event))
        elif name == "failed":
            known = replace(known, failed=_end_of(event))
        report.ranks[rank] = known
    elif name == "failed":
        report.failed = _end_of(event)


def _end_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns those fields of an event that are used to diagnose a failure."""
    found = {name: event.get(name) for name in ("rank", "at", "exit_code", "signal", "kind", "alone")}
    return {**found, "error": event["error"][:KEPT]} if "error" in event else found
