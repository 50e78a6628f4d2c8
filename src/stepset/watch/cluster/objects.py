"""The objects of one run as last seen. Each is parsed once per change, without the fields that no status needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from stepset.targets.metadata import RUN
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.events import Events, read_event
from stepset.watch.cluster.kueue import KueueWorkload, read_kueue_workload
from stepset.watch.cluster.pods import Pod, read_pod
from stepset.watch.cluster.unstructured import Fields, part, text
from stepset.watch.cluster.workload import Workload, combined, read_workload

Fate = Literal["", "deleted", "missing"]

_CREATORS = ("JobSet", "TrainJob")  # kinds whose controllers create Jobs or JobSets

_ENDS_KEPT, _ATTEMPTS_KEPT = 16, 8  # of earlier attempts: enough to explain their ends
_DEPARTED_KEPT = 8


class RunObjects:
    """The objects of one run as last seen.

    `name` and `uid` are those of the run's workload; by default, of the first workload seen. A workload of that name
    with another uid belongs to another run.

    Attributes:
        fate: `deleted` if the workload's deletion was observed, `missing` if the workload no longer exists and its
            deletion was not observed; empty while it exists.
        unwanted: the follower has deleted the run, so a missing workload counts as deleted.
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
        self._kueue_workloads: dict[str, KueueWorkload] = {}
        self._pods: dict[str, Pod] = {}
        self._earlier: dict[int, dict[str, Pod]] = {}
        self._deleted: dict[tuple[str, int], str] = {}
        self._replaced: dict[tuple[str, int], int] = {}
        self._departed: deque[Pod] = deque(maxlen=_DEPARTED_KEPT)
        self._terminating: dict[str, Pod] = {}
        self._attempt = 0
        self._started: dict[str, float] = {}
        self._present: tuple[list[Pod], dict[tuple[str, int], int]] | None = None

    def see(self, change: Change) -> bool:
        """Processes a change; returns whether it changed anything relevant. Ignores objects of other runs."""
        data, deleted = change.object, change.verb == "DELETED"
        kind = text(data, "kind")
        if kind == "Pod":
            return self.name in ("", run_of(data)) and self._see_pod(read_pod(data, deleted))
        if kind == "Event":
            return not deleted and self._see_event(data)
        if kind == "Workload":
            return self._see_kueue_workload(read_kueue_workload(data), deleted)
        workload = read_workload(data)
        return workload is not None and self._see_workload(workload, change)

    def not_found(self) -> bool:
        """Records that the workload does not exist; returns whether this was unknown before."""
        if self.fate:
            return False
        self.fate = "deleted" if self.unwanted else "missing"
        return True

    def _see_workload(self, seen: Workload, change: Change) -> bool:
        deleted = change.verb == "DELETED"
        if seen.owner_kind in _CREATORS:
            if seen.kind == "JobSet":
                return self._see_inner(seen, deleted)
            return self._see_job(seen)
        if self.name and seen.name != self.name:
            return False
        if self.uid and seen.uid != self.uid:
            # A workload of another run with the same name: this run's workload no longer exists.
            return not deleted and self.not_found()
        self.name, self.uid = seen.name, seen.uid
        before, fate = self._top, self.fate
        if deleted:
            known = change.witnessed or seen.deletion_requested is not None or self.unwanted
            self.fate = "deleted" if known else "missing"
        self._top, self._whole = seen, None
        self._advance(seen.attempt)
        self._present = None
        return before != seen or fate != self.fate

    def _see_inner(self, seen: Workload, deleted: bool) -> bool:
        if self._top is not None and seen.owner != self._top.uid:
            return False
        before = self._inner
        # A TrainJob's controller replaces a deleted one.
        self._inner = None if deleted and (self._inner is None or self._inner.uid == seen.uid) else seen
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

    def _see_kueue_workload(self, seen: KueueWorkload, deleted: bool) -> bool:
        if deleted or seen.admitted:
            self.position = None
        if deleted:
            return self._kueue_workloads.pop(seen.uid, None) is not None
        before = self._kueue_workloads.get(seen.uid)
        self._kueue_workloads[seen.uid] = seen
        return before != seen

    def _see_event(self, data: Fields) -> bool:
        event = read_event(data)
        ours = not self.name or event.name == self.name or event.name.startswith(f"{self.name}-")
        return (ours or event.about in self._kueue_workloads) and self.events.add(event)

    def _see_pod(self, seen: Pod) -> bool:
        if seen.due is not None and not seen.deleted:
            self._terminating[seen.uid] = seen
        else:
            self._terminating.pop(seen.uid, None)
        self._advance(seen.attempt)
        if seen.attempt < self._attempt:
            return self._keep_earlier(seen)
        before = self._pods.get(seen.uid)
        if before == seen:
            return False
        if before is None:
            if seen.deleted:
                return False  # from before this process watched
            self._drop_replaced(seen)
        elif before.end is not None and before.deletion_requested is None:
            # The pod ended before its deletion was requested: the deletion is not the cause.
            seen = replace(seen, deletion_requested=None)
        elif before.deletion_requested is not None and seen.deletion_requested is not None:
            # The kubelet changes the deletion time when the pod has ended.
            seen = replace(seen, deletion_requested=min(before.deletion_requested, seen.deletion_requested))
        if before == seen:
            return False
        self._pods[seen.uid] = seen
        if seen.deleted:
            self._deleted[seen.group, seen.index] = seen.uid
        self._present = None
        if seen.started is not None:
            self._started[seen.group] = min(seen.started, self._started.get(seen.group, seen.started))
        return True

    def _drop_replaced(self, seen: Pod) -> None:
        """Drops the deleted pod that this one replaces."""
        slot = (seen.group, seen.index)
        deleted = self._pods.pop(self._deleted.pop(slot, ""), None)
        if deleted is not None:
            self._departed.append(deleted)
            self._replaced[slot] = self._replaced.get(slot, 0) + 1

    def _advance(self, attempt: int) -> None:
        """Starts a new attempt; keeps only the pods of the previous one that explain its end."""
        if attempt <= self._attempt:
            return
        old = sorted(self._pods.values(), key=_by_relevance)
        self._attempt = attempt
        self._pods, self._deleted, self._replaced, self._present = {}, {}, {}, None
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
        if before is not None and before.end is not None and before.deletion_requested is None:
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
        """When the first command of a group started, in any attempt."""
        return self._started.get(group)

    @property
    def jobs(self) -> Iterable[Workload]:
        """Jobs of the present attempt."""
        return self._jobs.values()

    @property
    def kueue_workloads(self) -> list[KueueWorkload]:
        """The Kueue Workloads of the run."""
        uids = {each.uid for each in (self._top, self._inner) if each is not None}
        return [each for each in self._kueue_workloads.values() if uids.intersection(each.owners)]

    @property
    def queued(self) -> KueueWorkload | None:
        """The Kueue Workload that is not admitted yet; None if there is none."""
        return next((each for each in self.kueue_workloads if not each.admitted), None)

    @property
    def pods(self) -> list[Pod]:
        """The pods of the present attempt, the newest of each place, ordered by group and index."""
        return self._current_pods()[0]

    def _current_pods(self) -> tuple[list[Pod], dict[tuple[str, int], int]]:
        """Returns the newest pod of each place, and how many pods each place had before."""
        if self._present is not None:
            return self._present
        newest: dict[tuple[str, int], Pod] = {}
        counts = dict(self._replaced)
        for pod in self._own_pods():
            slot = (pod.group, pod.index)
            if self._belongs_to_suspension(pod):
                counts[slot] = counts.get(slot, 0) + 1
                continue
            other = newest.get(slot)
            if other is not None:
                counts[slot] = counts.get(slot, 0) + 1
            if other is None or (pod.created, not pod.deleted, pod.uid) > (other.created, not other.deleted, other.uid):
                newest[slot] = pod
        self._present = [newest[slot] for slot in sorted(newest)], counts
        return self._present

    def _belongs_to_suspension(self, pod: Pod) -> bool:
        """Whether a suspension that has ended deleted the pod."""
        workload = self.workload
        resumed = workload.resumed if workload is not None else None
        requested = pod.deletion_requested
        return resumed is not None and requested is not None and requested <= resumed and pod.created < resumed

    def replaced(self, pod: Pod) -> int:
        """How many pods this one has replaced in the present attempt."""
        return self._current_pods()[1].get((pod.group, pod.index), 0)

    def replacements(self, group: str) -> int:
        """How many pods of a group were replaced, in the present attempt."""
        return sum(count for (name, _), count in self._current_pods()[1].items() if name == group)

    @property
    def known(self) -> set[str]:
        """Uids of all pods that a status may mention."""
        earlier = (uid for pods in self._earlier.values() for uid in pods)
        return {*self._pods, *earlier, *(pod.uid for pod in self._departed)}

    def every_pod(self) -> list[Pod]:
        """The pods of the present attempt, including replaced ones that still exist."""
        return list(self._own_pods())

    def predecessors(self) -> list[Pod]:
        """The latest pods of the present attempt that were replaced."""
        present = {pod.uid for pod in self.pods}
        others = [*self._departed, *(pod for pod in self._own_pods() if pod.uid not in present)]
        return [pod for pod in others if not self._belongs_to_suspension(pod)][-_DEPARTED_KEPT:]

    def terminating(self) -> list[Pod]:
        """Pods of all attempts whose deletion was requested and that still exist."""
        return list(self._terminating.values())

    def earlier(self, attempt: int) -> list[Pod]:
        """The pods of an earlier attempt that explain its end."""
        return list(self._earlier.get(attempt, {}).values())

    def _own_pods(self) -> Iterable[Pod]:
        """The pods of this workload, without those of another workload of the same name."""
        top = self._top
        owner = self._inner if top is not None and top.kind == "TrainJob" else top
        if owner is None:
            return self._pods.values()
        return [pod for pod in self._pods.values() if pod.owner == owner.uid]


def _by_relevance(pod: Pod) -> tuple[bool, bool, float]:
    """Sort key: pods that explain the end of their attempt come first."""
    failed = pod.end is not None and not pod.succeeded
    at = pod.end.at if pod.end is not None and pod.end.at is not None else float("inf")
    return not failed and pod.disruption is None, pod.deletion_requested is not None and pod.disruption is None, at


def run_of(data: Fields) -> str:
    """The name of the run an object belongs to; empty if its labels do not state it.

    Events and Kueue's Workloads have no such labels: they belong to the run of the objects they refer to.
    """
    labels = part(data, "metadata", "labels")
    return text(labels, RUN) or text(labels, "jobset.sigs.k8s.io/jobset-name")
