"""Keeps the last observed objects of one run. Each object is parsed once per change."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable
from typing import Literal

from msgspec import structs

from stepset.unstructured import part, text
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.events import Event, Events, read_event
from stepset.watch.cluster.kueue.unqueued import Unqueued
from stepset.watch.cluster.kueue.workload import KueueWorkload, read_kueue_workload
from stepset.watch.cluster.ownership import DeferredChanges, UnreadableObjectError, controller_of, name_of, run_of
from stepset.watch.cluster.planned import is_planned, job_of
from stepset.watch.cluster.pod_places import DeletionTimes, EarlierPods, PodPlaces
from stepset.watch.cluster.pods import Place, Pod, read_pod, relevance
from stepset.watch.cluster.workload import Workload, combined, read_workload

_log = logging.getLogger(__name__)

Absence = Literal["", "deleted", "missing"]

_CREATORS = ("JobSet", "TrainJob")  # the kinds whose controllers create Jobs or JobSets
FOLLOWED_KINDS = frozenset({"Pod", "Job", "JobSet", "TrainJob", "StatefulSet", "Workload"})
"""The watched kinds. Events about their objects are assigned by the uid of the object, never by its name."""

_DEPARTED_KEPT = 8
_JOBS_KEPT = 1000  # the number of Jobs, including deleted ones, whose pods may still change


class RunObjects:
    """The last observed objects of one run. A workload with the same name and another uid belongs to another run.

    Args:
        name, uid: the name and uid of the run's workload. Default: the name and uid of the first observed workload.

    Attributes:
        absence: `deleted` if the deletion of the workload was observed. `missing` if the workload no longer exists, but
            its deletion was not observed. Empty if the workload exists.
        deleted_by_follower: whether the follower has deleted the run. If True, a missing workload counts as deleted.
        deletions: the deletions of the run's pods.
        position: the run's position in Kueue's queue, from 1. None if the run is not queued or its position is unknown.
        unqueued: the reason why a suspended run has no Workload in its queue. None if the backend found no such reason.
        owners_known: a counter that increases when an owner of pods becomes known.
    """

    def __init__(self, name: str = "", uid: str = "") -> None:
        self.name = name
        self.uid = uid
        self.events = Events()
        self.absence: Absence = ""
        self.deleted_by_follower = False
        self.position: int | None = None
        self.unqueued: Unqueued | None = None
        self._top: Workload | None = None
        self._inner: Workload | None = None
        self._whole: Workload | None = None
        self._jobs: dict[str, Workload] = {}
        self._job_by_uid: dict[str, Workload] = {}
        self._held, self._held_events = DeferredChanges(), DeferredChanges()
        self.owners_known = 0
        self._kueue_workloads: dict[str, KueueWorkload] = {}
        self._places = PodPlaces()
        self._earlier = EarlierPods()
        self._departed: deque[Pod] = deque(maxlen=_DEPARTED_KEPT)
        self._terminating: dict[str, Pod] = {}
        self.deletions = DeletionTimes()
        self._attempt = 0
        self._started: dict[str, float] = {}
        self._present: tuple[list[Pod], dict[Place, int]] | None = None

    def see(self, change: Change) -> bool:
        """Processes a change. Returns whether the change is relevant for the run. Ignores objects of other runs.

        Raises UnreadableObjectError if an object of the run cannot be used. Other objects are not affected.
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
        """Records that the workload does not exist. Returns False if this was known already."""
        if self.absence:
            return False
        self.absence = "deleted" if self.deleted_by_follower else "missing"
        return True

    def owns(self, pod: str) -> bool:
        """Returns whether a pod belongs to the run. Returns False if the pod claims the index of another pod."""
        known = pod in self._places or pod in self._earlier
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
            # The workload belongs to another run with the same name. The other run is older if its workload is not new
            # and no workload of the followed run was observed yet. Otherwise, the workload of the followed run does not
            # exist any more. The deletion of another run's workload is ignored.
            precedes = self._top is None and (change.verb != "ADDED" or seen.deletion_requested is not None)
            return not (deleted or precedes) and self.not_found()
        self.name, self.uid = seen.name, seen.uid
        before, absence = self._top, self.absence
        if before is not None and before.planned > seen.planned:
            seen = structs.replace(seen, planned=before.planned)
        if not deleted:
            self.absence = ""  # it may be set if another workload of this name was observed first
        else:
            known = change.observed or seen.deletion_requested is not None or self.deleted_by_follower
            self.absence = "deleted" if known else "missing"
        self._top, self._whole = seen, None
        self._advance(seen.attempt)
        self._present = None
        return self._release(seen.uid) or before != seen or absence != self.absence

    def _see_controlled(self, seen: Workload, change: Change) -> bool:
        """Processes a JobSet of a TrainJob, or a Job of a JobSet. Defers the change until the owner is known."""
        top = self._top
        if seen.kind == "JobSet" and top is not None and top.kind == "TrainJob" and seen.owner == top.uid:
            return self._see_inner(seen, change.verb == "DELETED")
        if (jobset := self._jobset) is not None and (job := job_of(jobset, seen)) is not None:
            return self._see_job(job)
        self._held.keep(seen.owner, seen.uid, change)
        return False

    def _see_inner(self, seen: Workload, deleted: bool) -> bool:
        before = self._inner
        if before is not None and before.uid != seen.uid and (deleted or seen.created < before.created):
            return False  # the TrainJob's controller has replaced this JobSet
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
        """The JobSet whose Jobs run the pods, or None if there is none."""
        top = self._top
        return top if top is not None and top.kind == "JobSet" else self._inner

    def _release(self, owner: str) -> bool:
        """Processes the objects that waited for an owner. Returns whether anything relevant has changed."""
        self.owners_known += owner == self.uid
        waiting = (*self._held.take(owner), *self._held_events.take(owner))
        return self._see_all(waiting)

    def _see_all(self, changes: Iterable[Change]) -> bool:
        changed = False
        for change in changes:
            try:
                changed |= self.see(change)
            except UnreadableObjectError as error:
                # The error is not raised, because it concerns a deferred change, and not the change that was passed to
                # `see`.
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
        """Returns whether an object of the run has this uid."""
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
        creator = job if by_job else top if top is not None and owner.uid == top.uid else None
        if creator is None:
            if by_job and owner.kind in ("Job", "StatefulSet"):
                self._held.keep(owner.uid, uid, change)
            return self._forget(uid)  # the pod's controller may have released the pod
        self._held.drop(uid)
        seen = read_pod(data, change.verb == "DELETED", owner)
        if seen.index < 0:
            raise UnreadableObjectError("its index is not a number")
        if not is_planned(creator, seen):
            return self._forget(uid)
        attempt = creator.attempt if by_job else min(seen.attempt, creator.attempt)
        if attempt != seen.attempt:  # rarely true; copying each pod would make `read_pod` a fifth slower
            seen = structs.replace(seen, attempt=attempt)
        changed = self._see_own_pod(seen)
        return self._see_all(self._held_events.take(uid)) or changed

    def _forget(self, pod: str) -> bool:
        """Forgets a pod that does not belong to the run. Returns whether the pod was known."""
        self._terminating.pop(pod, None)
        self._present = None
        return self._places.remove(pod)

    def _see_own_pod(self, seen: Pod) -> bool:
        if seen.due is not None and not seen.deleted:
            self._terminating[seen.uid] = seen
        else:
            self._terminating.pop(seen.uid, None)
        if seen.deleted and self._places.is_surplus(seen.uid):
            self._places.remove(seen.uid)
            return False
        before = self._places.get(seen.uid)
        self.deletions.observe(known := before or self._earlier.get(seen.uid), seen)
        if known is not None:
            seen = self.deletions.apply(known, seen)
        if seen.attempt < self._attempt:
            return self._keep_earlier(seen)
        if before == seen:
            return False
        if before is None:
            if seen.deleted:
                return False  # the pod was deleted before this process watched the run
            if (replaced := self._places.take_replaced(seen, self._belongs_to_suspension)) is not None:
                self._departed.append(replaced)
        self._places.put(seen)
        self._present = None
        if seen.started is not None:
            self._started[seen.group] = min(seen.started, self._started.get(seen.group, seen.started))
        return True

    def _advance(self, attempt: int) -> None:
        """Starts a new attempt. Keeps only those pods of the previous attempt that explain its failure."""
        if attempt <= self._attempt:
            return
        old = sorted(self._own_pods(), key=relevance)
        self._attempt, self._present = attempt, None
        self._places.clear()
        self._departed.clear()
        self._jobs = {name: job for name, job in self._jobs.items() if job.attempt >= attempt}
        for pod in old:
            self._keep_earlier(pod)

    def _keep_earlier(self, seen: Pod) -> bool:
        return not self._places.is_surplus(seen.uid) and self._earlier.keep(seen)

    @property
    def workload(self) -> Workload | None:
        """The top-level workload. A TrainJob has the state of its JobSet."""
        if self._whole is None and self._top is not None:
            self._whole = combined(self._top, self._inner)
        return self._whole

    @property
    def attempt(self) -> int:
        """The number of restarts of the whole gang so far."""
        return self._attempt

    def started(self, group: str) -> float | None:
        """Returns the time at which a command of a group started first. The time may be in an earlier attempt."""
        return self._started.get(group)

    @property
    def jobs(self) -> Iterable[Workload]:
        """The Jobs of the current attempt."""
        return self._jobs.values()

    @property
    def kueue_workloads(self) -> list[KueueWorkload]:
        """The Kueue Workloads of the run."""
        uids = {each.uid for each in (self._top, self._inner) if each is not None}
        return [each for each in self._kueue_workloads.values() if uids.intersection(each.owners)]

    @property
    def queued(self) -> KueueWorkload | None:
        """The Kueue Workload that is not admitted yet, or None if there is none."""
        return next((each for each in self.kueue_workloads if not each.admitted), None)

    @property
    def pods(self) -> list[Pod]:
        """The newest pod of each place in the current attempt, sorted by group and index."""
        return self._current_pods()[0]

    def _current_pods(self) -> tuple[list[Pod], dict[Place, int]]:
        """Returns the newest pod of each place, and the number of pods that each place had before."""
        if self._present is None:
            self._present = self._places.newest(self._belongs_to_suspension)
        return self._present

    def _belongs_to_suspension(self, pod: Pod) -> bool:
        """Returns whether a suspension of the run that has already ended caused the deletion of the pod."""
        workload = self.workload
        resumed = workload.resumed if workload is not None else None
        if resumed is None or pod.deletion_requested is None:
            return False
        # `resumed` is a whole second, and DeletionTimes may have added a fraction of a second to the other time.
        return math.floor(pod.deletion_requested) <= resumed and pod.created < resumed

    def replaced(self, pod: Pod) -> int:
        """Returns how many pods this pod has replaced in the current attempt."""
        return self._current_pods()[1].get(pod.place, 0)

    def replacements(self, group: str) -> int:
        """Returns how many pods of a group were replaced in the current attempt."""
        return sum(count for (name, _), count in self._current_pods()[1].items() if name == group)

    @property
    def known(self) -> set[str]:
        """The uids of all pods that a status may mention."""
        return {*(pod.uid for pod in self._places), *self._earlier.uids(), *(pod.uid for pod in self._departed)}

    @property
    def lacks_pods(self) -> bool:
        """Whether the run is neither suspended nor over, and has fewer pods than planned."""
        workload = self.workload
        if workload is None or workload.suspended or workload.ended:
            return False
        return len(self.pods) < sum(workload.groups.values())

    def every_pod(self) -> list[Pod]:
        """Returns the pods of the current attempt, including replaced pods that still exist."""
        return list(self._own_pods())

    def predecessors(self) -> list[Pod]:
        """Returns the replaced pods of the current attempt. Returns at most _DEPARTED_KEPT pods."""
        present = {pod.uid for pod in self.pods}
        others = [*self._departed, *(pod for pod in self._own_pods() if pod.uid not in present)]
        return [pod for pod in others if not self._belongs_to_suspension(pod)][-_DEPARTED_KEPT:]

    def terminating(self) -> list[Pod]:
        """Returns the pods that still exist although their deletion was requested. Contains pods of all attempts."""
        return [pod for pod in self._terminating.values() if not self._places.is_surplus(pod.uid)]

    @property
    def earlier_attempts(self) -> list[int]:
        """The earlier attempts for which `earlier` returns pods."""
        return self._earlier.attempts()

    def earlier(self, attempt: int) -> list[Pod]:
        """Returns the pods of an earlier attempt that explain its failure."""
        return self._earlier.of(attempt)

    def events_of_former(self) -> list[Event]:
        """Returns the events about unobserved Jobs and pods of the run, such as pods of earlier attempts."""
        since = self._top.created if self._top is not None else 0.0  # an earlier run may have the same name
        found = [read_event(change.object) for change in self._held_events.changes()]
        return [each for each in found if each.name.startswith(f"{self.name}-") and each.last >= since]

    def _own_pods(self) -> Iterable[Pod]:
        """Returns the pods of the current attempt, without pods that claim the index of another pod."""
        self._current_pods()
        return list(self._places)
