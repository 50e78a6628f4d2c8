"""Keeps the evidence of stalled ranks while it is valid, and adds the hang to the status of a run. No I/O, no clock."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepset.hang import Hang, HangKind
from stepset.run_status import Failure, FailureKind, Phase, RankStatus, RunStatus
from stepset.watch.agent_events import read_events
from stepset.watch.hangs.evidence import RankEvidence, read_evidence
from stepset.watch.hangs.rules import hang_of
from stepset.watch.lines import Batch, OpenLine
from stepset.watch.present.hang import busy_note, hang_clause, hang_remedy, has_failed_rank

_LAUNCHER = -1
"""The key of the evidence of a pod's launcher, while no rank of the pod runs."""
_RANKS_OF_POD = 256
"""The maximum number of ranks of a pod whose evidence is kept."""
_STALLED = "stalled"
JOINS = "joins"
"""The event that reports when ranks have joined collectives. It neither is progress nor reports a pause."""
_REMEMBERED = 30.0
"""The number of seconds after which a hang is forgotten when the run makes progress again."""
_TIMEOUT = re.compile(r"timed? ?out", re.IGNORECASE)
"""Errors of ranks that have waited too long for others."""


class StalledRanks:
    """The evidence of the ranks of one run, by the pod that has reported it.

    Every other event of a pod, such as `resumed` or the exit of a rank, and each output of a rank make the evidence of
    the pod invalid. If the agent has seen that ranks print lines while they hang, only an event does.
    """

    def __init__(self) -> None:
        self._pods: dict[str, dict[int, RankEvidence]] = {}
        self._printing: set[str] = set()  # the pods whose ranks print lines while they hang

    def see(self, pod: str, batch: Batch) -> bool:
        """Processes a chunk of a pod's output. Returns whether the evidence may have changed.

        Args:
            pod: identifies the pod.
        """
        reported = any(event["event"] == _STALLED for event in batch.events)
        if not reported and not self._pods:
            return False
        before = {key: dict(known) for key, known in self._pods.items()}
        self._cancel_elsewhere(pod, batch)
        if not reported and _has_output(batch):  # the output includes progress reports, whose positions are unknown
            self._see_output(pod)
        at = 0
        for position, item in batch.between:
            if _from_ranks(batch, at, position) or (isinstance(item, OpenLine) and _is_rank(item.source)):
                self._see_output(pod)
            at = position
            if not isinstance(item, OpenLine):
                for event in read_events([item] if item["event"] != JOINS else []):
                    self._event(pod, event)
        if _from_ranks(batch, at, len(batch.lines)):
            self._see_output(pod)
        return before != self._pods

    def _see_output(self, pod: str) -> None:
        if pod not in self._printing:
            self._pods.pop(pod, None)

    def _event(self, pod: str, event: Mapping[str, Any]) -> None:
        if event["event"] != _STALLED:
            self._printing.discard(pod)
            self._pods.pop(pod, None)
        elif (evidence := read_evidence(event[_STALLED])) is not None:
            if event[_STALLED].get("prints") is True:
                self._printing.add(pod)
            known = self._pods.setdefault(pod, {})
            key = _LAUNCHER if evidence.rank is None else evidence.rank
            if key in known or len(known) < _RANKS_OF_POD:
                known[key] = evidence

    def _cancel_elsewhere(self, pod: str, batch: Batch) -> None:
        """Cancels the evidence of ranks whose output another pod prints, as mpirun does."""
        for source in batch.raw:
            if not _is_rank(source):
                continue
            rank = int(source.split()[1])
            for other, known in list(self._pods.items()):
                if other != pod and rank in known and (batch.at is None or batch.at > known[rank].at):
                    del self._pods[other]

    def of(self, ranks: Sequence[RankStatus], pods: Mapping[str, str]) -> dict[int, RankEvidence]:
        """Returns the evidence of ranks. Evidence about a rank of another pod is ignored, because it is forged.

        The evidence of a rank that has not started is that of its launcher.

        Args:
            ranks: the rows of the current attempt.
            pods: the key of each pod of the current attempt (`see`), by the name of the pod.
        """
        found = {}
        for row in ranks:
            key = _LAUNCHER if row.state == "Pending" else row.rank
            if row.rank is None or key is None:
                continue
            if (evidence := self._pods.get(pods.get(row.pod, ""), {}).get(key)) is not None:
                found[row.rank] = evidence
        return found

    def drop(self, pod: str) -> None:
        """Drops the evidence of a pod."""
        self._printing.discard(pod)
        self._pods.pop(pod, None)

    def clear(self) -> None:
        """Drops all evidence, because a new attempt begins."""
        self._pods.clear()
        self._printing.clear()

    def __bool__(self) -> bool:
        return bool(self._pods)


def with_hang(status: RunStatus, evidence: Mapping[int, RankEvidence]) -> RunStatus:
    """Returns the status of a running run with its hang. If ranks are busy, the status has a note instead.

    If a rank has failed or was stopped, the other ranks will be stopped, too. Then the run has no hang.
    """
    if not evidence or status.phase is not Phase.RUNNING or has_failed_rank(status):
        return status
    found = hang_of(status.ranks, evidence)
    if found is None:
        return status
    if found.kind is HangKind.BUSY:
        return status.with_(notes=(*status.notes, busy_note(found, status.name)))
    step = None if status.progress is None else status.progress.step
    return status.with_(hang=replace(found, step=step))


class KnownHang:
    """The last hang of a run, until the run has made progress for a while.

    When a rank fails because of a hang, it prints its error and exits. Both look like progress for a moment.
    """

    def __init__(self) -> None:
        self._hang: Hang | None = None
        self._until = float("inf")

    def see(self, hang: Hang | None, now: float) -> None:
        """Records the current hang of a running run. `now` is the current time, in seconds."""
        if hang is not None:
            self._hang, self._until = hang, float("inf")
        elif self._until == float("inf"):
            self._until = now + _REMEMBERED

    def at(self, now: float) -> Hang | None:
        """Returns the hang that is known at a time."""
        return self._hang if now < self._until else None

    def clear(self) -> None:
        self._hang = None


def with_known_hang(failure: Failure, hang: Hang | None) -> Failure:
    """Returns the failure of a run with the hang that was known before, or the failure itself if none was known.

    If the run exceeded its deadline, or a rank timed out, the advice about the hang replaces the advice of the failure.
    """
    if hang is None or hang_clause(hang) in failure.message:
        return failure
    message = f"{failure.message.rstrip('.')}; before, {hang_clause(hang)}."
    return replace(failure, message=message, advice=hang_remedy(hang) if is_late(failure) else failure.advice)


def is_late(failure: Failure) -> bool:
    """Returns whether a run exceeded its deadline, or a rank waited for others until a timeout."""
    return failure.kind is FailureKind.DEADLINE_EXCEEDED or _TIMEOUT.search(failure.error) is not None


def ended_by_hang(status: RunStatus) -> Hang | None:
    """Returns the hang that lasted until the deadline of a failed run or until a timeout. Returns None otherwise."""
    return status.hang if status.failure is not None and is_late(status.failure) else None


def _has_output(batch: Batch) -> bool:
    return any(_is_rank(source) for source in batch.printed())


def _from_ranks(batch: Batch, start: int, end: int) -> bool:
    return any(_is_rank(head.source) for head, _ in batch.lines[start:end])


def _is_rank(source: str) -> bool:
    return source.startswith("rank ")
