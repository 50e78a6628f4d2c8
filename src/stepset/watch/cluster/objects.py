"""The objects of one run, as last seen. Each is read once, when it changes; what no state needs is not kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from stepset.targets.metadata import RUN
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.events import Events, read_event
from stepset.watch.cluster.kueue import Ticket, read_ticket
from stepset.watch.cluster.pods import Pod, read_pod
from stepset.watch.cluster.unstructured import Fields, part, text
from stepset.watch.cluster.workload import Workload, combined, read_workload

Fate = Literal["", "deleted", "missing"]

_HOLDERS = ("JobSet", "TrainJob")  # kinds that create workloads of their own

_ENDS_KEPT, _ATTEMPTS_KEPT = 16, 8  # of earlier attempts: enough to explain their ends
_DEPARTED_KEPT = 8


class RunObjects:
    """The objects of one run as last seen.

    `name` and `uid` are those of the run's workload; default: of the first workload seen. A workload of that name with
    another uid is another run.

    Attributes:
        fate: `deleted` once the workload's deletion was seen, `missing` once it is gone without that.
        unwanted: the follower has deleted the run, so that a missing workload counts as deleted.
        position: the run's position in Kueue's queue, from 1; None if unknown, or if it is not queued.
    """

    def __init__(self, name: str = "", uid: str = "") -> None:
        self.name = name
        self.uid = uid
        self.events = Events()
        self.fate: Fate = ""
        self.unwanted = False
        self.position: int | None = None
        self._top: Workload | None = None
        self._inner: Workload | None = None
        self._whole: Workload | None = None
        self._jobs: dict[str, Workload] = {}
        self._tickets: dict[str, Ticket] = {}
        self._pods: dict[str, Pod] = {}
        self._earlier: dict[int, dict[str, Pod]] = {}
        self._gone: dict[tuple[str, int], str] = {}
        self._replaced: dict[tuple[str, int], int] = {}
        self._departed: deque[Pod] = deque(maxlen=_DEPARTED_KEPT)
        self._leaving: dict[str, Pod] = {}
        self._attempt = 0
        self._started: dict[str, float] = {}
        self._present: tuple[list[Pod], dict[tuple[str, int], int]] | None = None

    def see(self, change: Change) -> bool:
        """Takes a change; returns whether it changed anything relevant. Objects of other runs are ignored."""
        data, gone = change.object, change.verb == "DELETED"
        kind = text(data, "kind")
        if kind == "Pod":
            return self.name in ("", run_of(data)) and self._see_pod(read_pod(data, gone))
        if kind == "Event":
            return not gone and self._see_event(data)
        if kind == "Workload":
            return self._see_ticket(read_ticket(data), gone)
        workload = read_workload(data)
        return workload is not None and self._see_workload(workload, change)

    def not_found(self) -> bool:
        """Records that the server has no such workload; returns whether that is new."""
        if self.fate:
            return False
        self.fate = "deleted" if self.unwanted else "missing"
        return True

    def _see_workload(self, seen: Workload, change: Change) -> bool:
        gone = change.verb == "DELETED"
        if seen.owner_kind in _HOLDERS:
            if seen.kind == "JobSet":
                return self._see_inner(seen, gone)
            return self._see_job(seen)
        if self.name and seen.name != self.name:
            return False
        if self.uid and seen.uid != self.uid:
            # Another run's of the same name: ours must be gone.
            return not gone and self.not_found()
        self.name, self.uid = seen.name, seen.uid
        before, fate = self._top, self.fate
        if gone:
            known = change.witnessed or seen.deleted is not None or self.unwanted
            self.fate = "deleted" if known else "missing"
        self._top, self._whole = seen, None
        self._advance(seen.attempt)
        self._present = None
        return before != seen or fate != self.fate

    def _see_inner(self, seen: Workload, gone: bool) -> bool:
        if self._top is not None and seen.owner != self._top.uid:
            return False
        before = self._inner
        # A TrainJob's controller replaces a deleted one.
        self._inner = None if gone and (self._inner is None or self._inner.uid == seen.uid) else seen
        self._whole = None
        self._advance(seen.attempt)
        self._present = None
        return before != self._inner

    def _see_job(self, seen: Workload) -> bool:
        if seen.attempt < self._attempt:
            return False
        before = self._jobs.get(seen.name)
        self._jobs[seen.name] = seen
        self._advance(seen.attempt)
        return before != seen

    def _see_ticket(self, seen: Ticket, gone: bool) -> bool:
        if gone or seen.admitted:
            self.position = None
        if gone:
            return self._tickets.pop(seen.uid, None) is not None
        before = self._tickets.get(seen.uid)
        self._tickets[seen.uid] = seen
        return before != seen

    def _see_event(self, data: Fields) -> bool:
        event = read_event(data)
        ours = not self.name or event.name == self.name or event.name.startswith(f"{self.name}-")
        return (ours or event.about in self._tickets) and self.events.add(event)

    def _see_pod(self, seen: Pod) -> bool:
        if seen.due is not None and not seen.gone:
            self._leaving[seen.uid] = seen
        else:
            self._leaving.pop(seen.uid, None)
        self._advance(seen.attempt)
        if seen.attempt < self._attempt:
            return self._keep_earlier(seen)
        before = self._pods.get(seen.uid)
        if before == seen:
            return False
        if before is None:
            if seen.gone:
                return False  # of an earlier time
            self._drop_replaced(seen)
        elif before.end is not None and before.asked is None:
            # It had ended before its deletion was requested, which is then no cause.
            seen = replace(seen, asked=None)
        elif before.asked is not None and seen.asked is not None:
            # The kubelet changes the time when it has finished with the pod.
            seen = replace(seen, asked=min(before.asked, seen.asked))
        if before == seen:
            return False
        self._pods[seen.uid] = seen
        if seen.gone:
            self._gone[seen.group, seen.index] = seen.uid
        self._present = None
        if seen.started is not None:
            self._started[seen.group] = min(seen.started, self._started.get(seen.group, seen.started))
        return True

    def _drop_replaced(self, seen: Pod) -> None:
        """Forgets the gone pod that this one replaces."""
        slot = (seen.group, seen.index)
        gone = self._pods.pop(self._gone.pop(slot, ""), None)
        if gone is not None:
            self._departed.append(gone)
            self._replaced[slot] = self._replaced.get(slot, 0) + 1

    def _advance(self, attempt: int) -> None:
        """Begins a new attempt; of the earlier one only the pods that explain its end are kept."""
        if attempt <= self._attempt:
            return
        old = sorted(self._pods.values(), key=_innocence)
        self._attempt = attempt
        self._pods, self._gone, self._replaced, self._present = {}, {}, {}, None
        self._departed.clear()
        self._jobs = {name: job for name, job in self._jobs.items() if job.attempt >= attempt}
        for pod in old[:_ENDS_KEPT]:
            self._keep_earlier(pod)
        while len(self._earlier) > _ATTEMPTS_KEPT:
            del self._earlier[min(self._earlier)]

    def _keep_earlier(self, seen: Pod) -> bool:
        kept = self._earlier.setdefault(seen.attempt, {})
        before = kept.get(seen.uid)
        if before == seen or (before is None and len(kept) >= _ENDS_KEPT):
            return False
        if before is not None and before.end is not None and before.asked is None:
            return False
        kept[seen.uid] = seen
        return True

    @property
    def workload(self) -> Workload | None:
        """The top-level workload; a TrainJob with the state of its JobSet."""
        if self._whole is None and self._top is not None:
            self._whole = combined(self._top, self._inner)
        return self._whole

    @property
    def attempt(self) -> int:
        """Gang restarts so far."""
        return self._attempt

    def started(self, group: str) -> float | None:
        """When the first command of a group began, in any attempt."""
        return self._started.get(group)

    @property
    def jobs(self) -> Iterable[Workload]:
        """Jobs of the present attempt."""
        return self._jobs.values()

    @property
    def tickets(self) -> list[Ticket]:
        """Its places in queues."""
        uids = {each.uid for each in (self._top, self._inner) if each is not None}
        return [ticket for ticket in self._tickets.values() if uids.intersection(ticket.owners)]

    @property
    def queued(self) -> Ticket | None:
        """The Workload of a queue that has not admitted the run."""
        return next((ticket for ticket in self.tickets if not ticket.admitted), None)

    @property
    def pods(self) -> list[Pod]:
        """The pods of the present attempt, the newest of each place, ordered by group and index."""
        return self._settle()[0]

    def _settle(self) -> tuple[list[Pod], dict[tuple[str, int], int]]:
        """(the pod in each place, how many pods were there before it)"""
        if self._present is not None:
            return self._present
        newest: dict[tuple[str, int], Pod] = {}
        counts = dict(self._replaced)
        for pod in self._ours():
            slot = (pod.group, pod.index)
            if self._is_past(pod):
                counts[slot] = counts.get(slot, 0) + 1
                continue
            other = newest.get(slot)
            if other is not None:
                counts[slot] = counts.get(slot, 0) + 1
            if other is None or (pod.created, not pod.gone, pod.uid) > (other.created, not other.gone, other.uid):
                newest[slot] = pod
        self._present = [newest[slot] for slot in sorted(newest)], counts
        return self._present

    def _is_past(self, pod: Pod) -> bool:
        """Whether a pod was stopped by a suspension that has ended."""
        workload = self.workload
        resumed = workload.resumed if workload is not None else None
        return resumed is not None and pod.asked is not None and pod.asked <= resumed and pod.created < resumed

    def replaced(self, pod: Pod) -> int:
        """How many pods had this one's place before it, in the present attempt."""
        return self._settle()[1].get((pod.group, pod.index), 0)

    def replacements(self, group: str) -> int:
        """How many pods of a group were replaced, in the present attempt."""
        return sum(count for (name, _), count in self._settle()[1].items() if name == group)

    @property
    def known(self) -> set[str]:
        """Uids of all pods that a status may mention."""
        earlier = (uid for pods in self._earlier.values() for uid in pods)
        return {*self._pods, *earlier, *(pod.uid for pod in self._departed)}

    def every_pod(self) -> list[Pod]:
        """The pods of the present attempt, including replaced ones that still exist."""
        return list(self._ours())

    def predecessors(self) -> list[Pod]:
        """The latest pods of the present attempt that were replaced."""
        present = {pod.uid for pod in self.pods}
        others = [*self._departed, *(pod for pod in self._ours() if pod.uid not in present)]
        return [pod for pod in others if not self._is_past(pod)][-_DEPARTED_KEPT:]

    def leaving(self) -> list[Pod]:
        """Pods of all attempts whose deletion was requested and that still exist."""
        return list(self._leaving.values())

    def earlier(self, attempt: int) -> list[Pod]:
        """The kept pods of an earlier attempt: those that explain its end."""
        return list(self._earlier.get(attempt, {}).values())

    def _ours(self) -> Iterable[Pod]:
        """The pods, without those of another workload of the same name."""
        top = self._top
        owner = self._inner if top is not None and top.kind == "TrainJob" else top
        if owner is None:
            return self._pods.values()
        return [pod for pod in self._pods.values() if pod.owner == owner.uid]


def _innocence(pod: Pod) -> tuple[bool, bool, float]:
    """Sort key: how little a pod explains the end of its attempt."""
    failed = pod.end is not None and not pod.succeeded
    at = pod.end.at if pod.end is not None and pod.end.at is not None else float("inf")
    return not failed and pod.disruption is None, pod.asked is not None and pod.disruption is None, at


def run_of(data: Fields) -> str:
    """The name of the run an object belongs to; empty if its labels do not state it.

    Events and Kueue's Workloads have no such labels: they belong to the run of the objects they refer to.
    """
    labels = part(data, "metadata", "labels")
    return text(labels, RUN) or text(labels, "jobset.sigs.k8s.io/jobset-name")
