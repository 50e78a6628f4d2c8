"""The objects of one run as last seen. Each is parsed once per change, without the fields that no status needs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from stepset.unstructured import part, text
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.events import Events, read_event
from stepset.watch.cluster.kueue import KueueWorkload, read_kueue_workload
from stepset.watch.cluster.ownership import (
    DeferredChanges,
    UnreadableObjectError,
    controller_of,
    name_of,
    run_of,
)
from stepset.watch.cluster.pod_places import PodPlaces
from stepset.watch.cluster.pods import Place, Pod, read_pod
from stepset.watch.cluster.workload import Workload, combined, is_job_of, is_pod_of, read_workload

_log = logging.getLogger(__name__)

Absence = Literal["", "deleted", "missing"]

_CREATORS = ("JobSet", "TrainJob")  # kinds whose controllers create Jobs or JobSets
FOLLOWED_KINDS = frozenset({"Pod", "Job", "JobSet", "TrainJob", "StatefulSet", "Workload"})
"""Watched kinds: events about their objects are assigned by uid, never by name."""

_ENDS_KEPT, _ATTEMPTS_KEPT = 16, 8  # pods of each earlier attempt, and attempts
_DEPARTED_KEPT = 8
_JOBS_KEPT = 1000  # Jobs, including deleted ones, whose pods may still change


class RunObjects:
    """The objects of one run as last seen.

    `name` and `uid` are those of the run's workload; by default, of the first workload seen. A workload of that name
    with another uid belongs to another run.

    Attributes:
        absence: `deleted` if the workload's deletion was observed, `missing` if the workload no longer exists and its
            deletion was not observed; empty while it exists.
        deleted_by_follower: whether the follower has deleted the run; then a missing workload counts as deleted.
        position: the run's position in Kueue's queue, from 1; None if unknown, or if it is not queued.
        owners_known: how many owners of pods have become known so far.
    """

    def __init__(self, name: str = "", uid: str = "") -> None:
        self.name = name
        self.uid = uid
        self.events = Events()
        self.absence: Absence = ""
        self.deleted_by_follower = False
        self.position: int | None = None
        self._top: Workload | None = None
        self._inner: Workload | None = None
        self._whole: Workload | None = None
        self._jobs: dict[str, Workload] = {}
        self._job_by_uid: dict[str, Workload] = {}
        self._held, self._held_events = DeferredChanges(), DeferredChanges()
        self.owners_known = 0
        self._kueue_workloads: dict[str, KueueWorkload] = {}
        self._places = PodPlaces()
        self._earlier: dict[int, dict[str, Pod]] = {}
        self._departed: deque[Pod] = deque(maxlen=_DEPARTED_KEPT)
        self._terminating: dict[str, Pod] = {}
        self._attempt = 0
        self._started: dict[str, float] = {}
        self._present: tuple[list[Pod], dict[Place, int]] | None = None

    def see(self, change: Change) -> bool:
        """Processes a change; returns whether it changed anything relevant. Ignores objects of other runs.

        Raises UnreadableObjectError for an object of the run that cannot be used; the others are not affected.
        """
        data, deleted = change.object, change.verb == "DELETED"
        kind = text(data, "kind")
        if kind == "Pod":
            return self.name in ("", run_of(data)) and self._see_pod(change)
        if kind == "Event":
            return self._see_event(change)
        if kind == "Workload":
            return self._see_kueue_workload(read_kueue_workload(data), deleted)
        workload = read_workload(data)
        return workload is not None and self._see_workload(workload, change)

    def not_found(self) -> bool:
        """Records that the workload does not exist; returns False if that was known already."""
        if self.absence:
            return False
        self.absence = "deleted" if self.deleted_by_follower else "missing"
        return True

    def owns(self, pod: str) -> bool:
        """Whether the pod with this uid belongs to the run; False for a pod that claims the index of another pod."""
        known = pod in self._places or any(pod in kept for kept in self._earlier.values())
        if known and not self._places.is_surplus(pod):
            self._current_pods()
        return known and not self._places.is_surplus(pod)

    def _see_workload(self, seen: Workload, change: Change) -> bool:
        deleted = change.verb == "DELETED"
        if seen.owner_kind in _CREATORS:
            return self._see_controlled(seen, change)
        if self.name and seen.name != self.name:
            return False
        if self._top is not None and seen.kind != self._top.kind:
            return False
        if self.uid and seen.uid != self.uid:
            # The workload of another run with the same name. If it is not new and this run's workload was not seen yet,
            # it belongs to an earlier run, and the watch will report its deletion. Otherwise, unless it is deleted, it
            # belongs to a later run, so this run's workload no longer exists.
            precedes = self._top is None and (change.verb != "ADDED" or seen.deletion_requested is not None)
            return not (deleted or precedes) and self.not_found()
        self.name, self.uid = seen.name, seen.uid
        before, absence = self._top, self.absence
        if not deleted:
            self.absence = ""  # it may be set because another workload of this name was seen first
        else:
            known = change.observed or seen.deletion_requested is not None or self.deleted_by_follower
            self.absence = "deleted" if known else "missing"
        self._top, self._whole = seen, None
        self._advance(seen.attempt)
        self._present = None
        return self._release(seen.uid) or before != seen or absence != self.absence

    def _see_controlled(self, seen: Workload, change: Change) -> bool:
        """Processes a JobSet of a TrainJob, or a Job of a JobSet, once its owner is known."""
        if seen.kind == "JobSet":
            if self._top is not None and self._top.kind == "TrainJob" and seen.owner == self._top.uid:
                return self._see_inner(seen, change.verb == "DELETED")
        elif (jobset := self._jobset) is not None and is_job_of(jobset, seen):
            return self._see_job(seen)
        self._held.keep(seen.owner, seen.uid, change)
        return False

    def _see_inner(self, seen: Workload, deleted: bool) -> bool:
        before = self._inner
        if before is not None and before.uid != seen.uid and (deleted or seen.created < before.created):
            return False  # a TrainJob's controller has replaced it
        self._inner = None if deleted else seen
        self._whole = None
        self._advance(seen.attempt)
        self._present = None
        return self._release(seen.uid) or before != self._inner

    def _see_job(self, seen: Workload) -> bool:
        if seen.uid not in self._job_by_uid:
            self.owners_known += 1
            if len(self._job_by_uid) >= _JOBS_KEPT:
                del self._job_by_uid[next(iter(self._job_by_uid))]
        self._job_by_uid[seen.uid] = seen
        changed = False
        before = self._jobs.get(seen.name)
        if seen.attempt >= self._attempt and (
            before is None or before.uid == seen.uid or before.created <= seen.created
        ):
            self._advance(seen.attempt)
            self._jobs[seen.name] = seen
            changed = before != seen
        return self._release(seen.uid) or changed

    @property
    def _jobset(self) -> Workload | None:
        """The JobSet whose Jobs run the pods; None if there is none."""
        top = self._top
        return top if top is not None and top.kind == "JobSet" else self._inner

    def _release(self, owner: str) -> bool:
        """Processes the objects that waited for an owner; returns whether one changed anything relevant."""
        self.owners_known += owner == self.uid
        waiting = (*self._held.take(owner), *self._held_events.take(owner))
        return self._see_all(waiting)

    def _see_all(self, changes: Iterable[Change]) -> bool:
        changed = False
        for change in changes:
            try:
                changed |= self.see(change)
            except UnreadableObjectError as error:
                # Not raised, because the caller of `see` has passed another change than this one, which was deferred.
                _log.warning("%s cannot be read and is ignored: %s", name_of(change.object), error)
        return changed

    def _see_kueue_workload(self, seen: KueueWorkload, deleted: bool) -> bool:
        if deleted or seen.admitted:
            self.position = None
        if deleted:
            return self._kueue_workloads.pop(seen.uid, None) is not None
        before = self._kueue_workloads.get(seen.uid)
        self._kueue_workloads[seen.uid] = seen
        return before != seen

    def _see_event(self, change: Change) -> bool:
        event = read_event(change.object)
        if change.verb == "DELETED":
            self._held_events.drop(event.uid)
            return False
        if self._is_known(event.about):
            return self.events.add(event)
        if event.kind in FOLLOWED_KINDS and event.about:
            self._held_events.keep(event.about, event.uid, change)
            return False
        ours = not self.name or event.name == self.name or event.name.startswith(f"{self.name}-")
        return ours and self.events.add(event)

    def _is_known(self, uid: str) -> bool:
        """Whether an object of the run has this uid."""
        itself = uid and uid in (self.uid, self._inner.uid if self._inner is not None else "")
        kueue = uid in self._kueue_workloads
        return bool(itself) or kueue or uid in self._job_by_uid or uid in self._places

    def _see_pod(self, change: Change) -> bool:
        data, uid = change.object, text(part(change.object, "metadata"), "uid")
        if not uid:
            return False
        owner, top = controller_of(data), self._top
        by_job = top is None or top.kind in _CREATORS
        job = self._job_by_uid.get(owner.uid) if by_job else None
        if job is None and (by_job or top is None or owner.uid != top.uid or not is_pod_of(top, data)):
            if by_job and owner.kind in ("Job", "StatefulSet"):
                self._held.keep(owner.uid, uid, change)
            self._terminating.pop(uid, None)
            return self._places.remove(uid) and self._changed()  # its controller has released it
        self._held.drop(uid)
        seen = read_pod(data, change.verb == "DELETED", owner)
        if seen.index < 0:
            raise UnreadableObjectError("its index is not a number")
        attempt = job.attempt if job is not None else min(seen.attempt, top.attempt if top is not None else 0)
        if attempt != seen.attempt:  # rarely true: copying takes a fifth of the time of `read_pod`
            seen = replace(seen, attempt=attempt)
        changed = self._see_own_pod(seen)
        return self._see_all(self._held_events.take(uid)) or changed

    def _changed(self) -> bool:
        self._present = None
        return True

    def _see_own_pod(self, seen: Pod) -> bool:
        if seen.due is not None and not seen.deleted:
            self._terminating[seen.uid] = seen
        else:
            self._terminating.pop(seen.uid, None)
        if seen.deleted and self._places.is_surplus(seen.uid):
            self._places.remove(seen.uid)
            return False
        if seen.attempt < self._attempt:
            return self._keep_earlier(seen)
        before = self._places.get(seen.uid)
        if before == seen:
            return False
        if before is None:
            if seen.deleted:
                return False  # deleted before this process watched the run
            if (replaced := self._places.take_replaced(seen, self._belongs_to_suspension)) is not None:
                self._departed.append(replaced)
        elif before.end is not None and before.deletion_requested is None:
            # The pod ended before its deletion was requested: the deletion is not the cause.
            seen = replace(seen, deletion_requested=None)
        elif before.deletion_requested is not None and seen.deletion_requested is not None:
            # The kubelet changes the deletion time when the pod has ended.
            seen = replace(seen, deletion_requested=min(before.deletion_requested, seen.deletion_requested))
        if before == seen:
            return False
        self._places.put(seen)
        self._present = None
        if seen.started is not None:
            self._started[seen.group] = min(seen.started, self._started.get(seen.group, seen.started))
        return True

    def _advance(self, attempt: int) -> None:
        """Starts a new attempt; keeps only the pods of the previous one that explain its end."""
        if attempt <= self._attempt:
            return
        old = sorted(self._own_pods(), key=_by_relevance)
        self._attempt, self._present = attempt, None
        self._places.clear()
        self._departed.clear()
        self._jobs = {name: job for name, job in self._jobs.items() if job.attempt >= attempt}
        for pod in old[:_ENDS_KEPT]:
            self._keep_earlier(pod)

    def _keep_earlier(self, seen: Pod) -> bool:
        if self._places.is_surplus(seen.uid):
            return False
        while len(self._earlier) > _ATTEMPTS_KEPT:
            del self._earlier[min(self._earlier)]
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
        """Jobs of the current attempt."""
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
        """The pods of the current attempt, the newest of each place, ordered by group and index."""
        return self._current_pods()[0]

    def _current_pods(self) -> tuple[list[Pod], dict[Place, int]]:
        """Returns the newest pod of each place, and how many pods each place had before."""
        if self._present is None:
            self._present = self._places.newest(self._belongs_to_suspension)
        return self._present

    def _belongs_to_suspension(self, pod: Pod) -> bool:
        """Whether the pod was deleted because the run was suspended, and the run has been resumed since."""
        workload = self.workload
        resumed = workload.resumed if workload is not None else None
        requested = pod.deletion_requested
        return resumed is not None and requested is not None and requested <= resumed and pod.created < resumed

    def replaced(self, pod: Pod) -> int:
        """How many pods this one has replaced in the current attempt."""
        return self._current_pods()[1].get(pod.place, 0)

    def replacements(self, group: str) -> int:
        """How many pods of a group were replaced, in the current attempt."""
        return sum(count for (name, _), count in self._current_pods()[1].items() if name == group)

    @property
    def known(self) -> set[str]:
        """Uids of all pods that a status may mention."""
        earlier = (uid for pods in self._earlier.values() for uid in pods)
        return {*(pod.uid for pod in self._places), *earlier, *(pod.uid for pod in self._departed)}

    def every_pod(self) -> list[Pod]:
        """The pods of the current attempt, including replaced ones that still exist."""
        return list(self._own_pods())

    def predecessors(self) -> list[Pod]:
        """The latest pods of the current attempt that were replaced."""
        present = {pod.uid for pod in self.pods}
        others = [*self._departed, *(pod for pod in self._own_pods() if pod.uid not in present)]
        return [pod for pod in others if not self._belongs_to_suspension(pod)][-_DEPARTED_KEPT:]

    def terminating(self) -> list[Pod]:
        """Pods of all attempts whose deletion was requested and that still exist."""
        return [pod for pod in self._terminating.values() if not self._places.is_surplus(pod.uid)]

    @property
    def earlier_attempts(self) -> list[int]:
        """The earlier attempts of which pods are known."""
        return sorted(self._earlier)

    def earlier(self, attempt: int) -> list[Pod]:
        """The pods of an earlier attempt that explain its end."""
        return list(self._earlier.get(attempt, {}).values())

    def _own_pods(self) -> Iterable[Pod]:
        """The pods of the current attempt, without those that claim the index of another pod."""
        self._current_pods()
        return list(self._places)


def _by_relevance(pod: Pod) -> tuple[bool, bool, float]:
    """Sort key: pods that explain the end of their attempt come first."""
    failed = pod.end is not None and not pod.succeeded
    at = pod.end.at if pod.end is not None and pod.end.at is not None else float("inf")
    return not failed and pod.disruption is None, pod.deletion_requested is not None and pod.disruption is None, at
