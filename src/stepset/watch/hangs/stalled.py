"""Keeps the evidence of stalled ranks while it is valid, and adds the hang to the status of a run. No I/O, no clock."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepset.hang import HANG_CODES, Hang, HangGroup, HangKind
from stepset.run_status import Failure, FailureKind, Phase, RankStatus, RunStatus
from stepset.watch.agent_events import read_events
from stepset.watch.hangs.evidence import RankEvidence, read_evidence
from stepset.watch.hangs.rules import hang_of
from stepset.watch.lines import Batch, OpenLine
from stepset.watch.present.hang import busy_note, hang_clause, hang_ended, hang_remedy, has_failed_rank

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
_STOP_KINDS = (FailureKind.CANCELLED, FailureKind.INFRASTRUCTURE)
_STOP_SIGNALS = (9, 15)
_STOP_CODES = (128 + 9, 128 + 15, *HANG_CODES)
"""How a rank ends that was stopped, and did not fail itself."""


class StalledRanks:
    """The evidence of the ranks of one run, by the pod that has reported it.

    Every other event of a pod, such as `resumed` or the exit of a rank, and each output of a rank make the evidence of
    the pod invalid. If the agent has seen that ranks print lines while they hang, only an event does. The evidence that
    an agent has collected before it stopped its ranks is kept separately, because the ranks then print lines and exit.
    """

    def __init__(self) -> None:
        self._pods: dict[str, dict[int, RankEvidence]] = {}
        self._printing: set[str] = set()  # the pods whose ranks print lines while they hang
        self._stops: dict[str, dict[int, RankEvidence]] = {}

    def see(self, pod: str, batch: Batch) -> bool:
        """Processes a chunk of a pod's output. Returns whether the evidence may have changed.

        Args:
            pod: identifies the pod.
        """
        reported = any(event["event"] == _STALLED for event in batch.events)
        if not reported and not self._pods and not self._stops:
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
            if event["event"] in ("resumed", "started"):
                self._stops.pop(pod, None)
        elif (evidence := read_evidence(event[_STALLED])) is not None:
            if event[_STALLED].get("prints") is True:
                self._printing.add(pod)
            key = _LAUNCHER if evidence.rank is None else evidence.rank
            for pods in (self._pods, self._stops) if event[_STALLED].get("stop") is True else (self._pods,):
                known = pods.setdefault(pod, {})
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
        return _of_rows(self._pods, ranks, pods)

    def before_stop(self, ranks: Sequence[RankStatus], pods: Mapping[str, str], failure: Failure | None) -> Hang | None:
        """Returns why an attempt made no progress before its ranks were stopped. Returns None if a rank made progress.

        Args:
            ranks: the rows of the attempt, after the stop.
            pods: the key of each pod of the attempt (`see`), by the name of the pod.
            failure: why the attempt failed. If the error of a rank explains the failure, the result is None.
        """
        if failure is None or not self._stops or not _stopped_by_hang(failure):
            return None
        evidence = _of_rows(self._stops, ranks, pods)
        # After a timeout, ranks that wait for the same rank fail at nearly the same time, or are stopped before.
        timed_out = _TIMEOUT.search(failure.error)
        late = {
            row.rank
            for row in ranks
            if row.rank is not None
            and (_failed_itself(row) or (timed_out and row.state == "Stopped" and row.rank not in evidence))
        }
        rows = [
            replace(row, state="Running") if row.rank in evidence and row.state != "Pending" else row
            for row in ranks
            if row.rank is not None and row.rank not in late
        ]
        if not evidence or any(row.state in ("Failed", "Stopped") for row in rows):
            return None
        found = hang_of(rows, {rank: each for rank, each in evidence.items() if rank not in late})
        if found is None or found.kind is HangKind.BUSY or (late and found.kind is HangKind.ALL_WAIT):
            return None  # with a timeout, ALL_WAIT means that the others wait for the rank that has failed
        timeouts = (HangGroup(tuple(sorted(late)), "timeout"),) if late else ()
        return replace(found, groups=(*timeouts, *found.groups))

    def drop(self, pod: str) -> None:
        """Drops the evidence of a pod."""
        self._printing.discard(pod)
        self._pods.pop(pod, None)
        self._stops.pop(pod, None)

    def clear(self) -> None:
        """Drops all evidence, because a new attempt begins."""
        self._pods.clear()
        self._printing.clear()
        self._stops.clear()

    def __bool__(self) -> bool:
        return bool(self._pods)


def _of_rows(
    known: Mapping[str, Mapping[int, RankEvidence]], ranks: Sequence[RankStatus], pods: Mapping[str, str]
) -> dict[int, RankEvidence]:
    found = {}
    for row in ranks:
        key = _LAUNCHER if row.state == "Pending" else row.rank
        if row.rank is None or key is None:
            continue
        if (evidence := known.get(pods.get(row.pod, ""), {}).get(key)) is not None:
            found[row.rank] = evidence
    return found


def _stopped_by_hang(failure: Failure) -> bool:
    """Returns whether a hang may be the reason of a failure, because no error of the training code is."""
    return failure.kind in _STOP_KINDS or failure.exit_code in HANG_CODES or is_late(failure)


def _failed_itself(row: RankStatus) -> bool:
    return row.state == "Failed" and row.signal not in _STOP_SIGNALS and row.exit_code not in _STOP_CODES


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
        return status.with_(notes=(*status.notes, busy_note(found, status)))
    step = None if status.progress is None else status.progress.step
    return status.with_(hang=replace(found, step=step))


@dataclass(frozen=True)
class KnownHang:
    """The last hang of a run, until the run has made progress for a while.

    When a rank fails because of a hang, it prints its error and exits. Both look like progress for a moment.
    """

    hang: Hang | None = None
    until: float = float("inf")

    def see(self, hang: Hang | None, now: float) -> KnownHang:
        """Returns the known hang after an observation of a running run. `now` is the current time, in seconds."""
        if hang is not None:
            return KnownHang(hang)
        return replace(self, until=min(self.until, now + _REMEMBERED))

    def at(self, now: float) -> Hang | None:
        """Returns the hang that is known at a time."""
        return self.hang if now < self.until else None


def with_known_hang(failure: Failure, hang: Hang | None) -> Failure:
    """Returns the failure of a run with the hang that was known before, or the failure itself if none was known.

    If the run exceeded its deadline, or a rank timed out, the advice about the hang replaces the advice of the failure.
    If an agent has ended the run because of the hang, the hang replaces the message of the failure.
    """
    if hang is None:
        return failure
    clause = hang_clause(hang)
    if (clause.partition(": ")[2] or clause) in failure.message:  # the pause was shorter when the message was created
        return failure
    if failure.exit_code in HANG_CODES:
        suspect = failure.node if failure.kind is FailureKind.INFRASTRUCTURE else ""
        return replace(failure, message=hang_ended(hang, suspect), advice=hang_remedy(hang))
    message = f"{failure.message.rstrip('.')}; before, {clause}."
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
