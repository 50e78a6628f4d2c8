"""Keeps the last observed objects of one run. Each object is parsed once per change."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from msgspec import structs

from stepset.targets.workload_kinds import CREATORS, WORKLOAD_KINDS
from stepset.unstructured import text
from stepset.watch.cluster.events import Event, Events, read_event
from stepset.watch.cluster.kueue.unqueued import Unqueued
from stepset.watch.cluster.kueue.workload import KueueWorkload, read_kueue_workload
from stepset.watch.cluster.ownership import Owner, UnreadableObjectError, controller_of, name_of, owner_of, uid_of
from stepset.watch.cluster.planned import is_planned
from stepset.watch.cluster.pods import Pod, read_pod
from stepset.watch.cluster.run.owners import Owners
from stepset.watch.cluster.run.pod_history import PodHistory
from stepset.watch.cluster.run.workloads import RunWorkloads
from stepset.watch.cluster.workload import Workload, read_workload
from stepset.watch.list_watch import Change

_log = logging.getLogger(__name__)

Absence = Literal["", "deleted", "missing"]

FOLLOWED_KINDS = frozenset({"Pod", "Workload", *(each.api.kind for each in WORKLOAD_KINDS.values())})
"""The watched kinds. Events about their objects are assigned by the uid of the object, never by its name."""


class RunObjects:
    """The last observed objects of one run. A workload with the same name and another uid belongs to another run.

    Args:
        name, uid: the name and uid of the run's workload. Default: the name and uid of the first observed workload.
        owners: the known objects of all runs of a router. Default: the objects of this run.

    Attributes:
        absence: `deleted` if the deletion of the workload was observed. `missing` if the workload no longer exists, but
            its deletion was not observed. Empty if the workload exists.
        deleted_by_follower: whether the follower has deleted the run. If True, a missing workload counts as deleted.
        events: the events about the objects of the run.
        history: the pods of the run, including replaced pods and pods of earlier attempts.
        pods_seen: the changes of pods of the run that the last call of `see` has processed.
        preemptors: the kind and the name of each object for which Kueue has preempted the run, by the object's uid.
            Empty if the backend has not read the names.
        position: the run's position in Kueue's queue, from 1. None if the run is not queued or its position is unknown.
        unqueued: the reason why a suspended run has no Workload in its queue. None if the backend found no such reason.
    """

    def __init__(self, name: str = "", uid: str = "", owners: Owners[RunObjects] | None = None) -> None:
        self.name = name
        self.uid = uid
        self.absence: Absence = ""
        self.deleted_by_follower = False
        self.events = Events()
        self.history = PodHistory()
        self.pods_seen: list[Change] = []
        self.preemptors: dict[str, str] = {}
        self.position: int | None = None
        self.unqueued: Unqueued | None = None
        self._owners: Owners[RunObjects] = Owners() if owners is None else owners
        self._workloads = RunWorkloads()
        self._kueue_workloads: dict[str, KueueWorkload] = {}

    def see(self, change: Change) -> bool:
        """Processes a change. Returns whether the change is relevant for the run. Ignores objects of other runs.

        If the owner of the object is not known yet, the change is deferred. The change of the owner then also processes
        the deferred changes.

        Raises UnreadableObjectError if an object of the run cannot be used. Other objects are not affected.
        """
        self.pods_seen = []
        return self._see(change)

    def _see(self, change: Change) -> bool:
        kind = text(change.object, "kind")
        if kind == "Pod":
            return self._see_pod(change)
        if kind == "Event":
            return self._see_event(change)
        if kind == "Workload":
            return self._see_kueue_workload(change)
        workload = read_workload(change.object)
        if workload is None:
            return False
        controlled = workload.owner_kind in CREATORS
        return self._see_controlled(workload, change) if controlled else self._see_workload(workload, change)

    def not_found(self) -> bool:
        """Records that the workload does not exist. Returns False if this was known already."""
        if self.absence:
            return False
        self.absence = "deleted" if self.deleted_by_follower else "missing"
        return True

    def owns(self, pod: str) -> bool:
        """Returns whether a pod belongs to the run. Returns False if the pod claims the index of another pod."""
        return self._owners.get(pod) is self and not self.history.is_surplus(pod)

    def _see_workload(self, seen: Workload, change: Change) -> bool:
        deleted, top = change.verb == "DELETED", self._workloads.top
        if (self.name and seen.name != self.name) or (top is not None and seen.kind != top.kind):
            return False
        if self.uid and seen.uid != self.uid:
            # The workload belongs to another run with the same name. The other run is older if its workload is not new
            # and no workload of the followed run was observed yet. Otherwise, the workload of the followed run does not
            # exist any more. The deletion of another run's workload is ignored.
            precedes = top is None and (change.verb != "ADDED" or seen.deletion_requested is not None)
            return not (deleted or precedes) and self.not_found()
        self.name, self.uid = seen.name, seen.uid
        before = self.absence
        if not deleted:
            self.absence = ""  # it may be set if another workload of this name was observed first
        else:
            known = change.observed or seen.deletion_requested is not None or self.deleted_by_follower
            self.absence = "deleted" if known else "missing"
        changed = self._workloads.see_top(seen) or before != self.absence
        return self._add(seen.uid, deleted) or changed

    def _see_controlled(self, seen: Workload, change: Change) -> bool:
        deleted = change.verb == "DELETED"
        changed = self._workloads.see_controlled(seen, deleted)
        if changed is None and self._owners.get(seen.uid) is not self:
            self._owners.defer(change)
            return False
        return self._add(seen.uid, deleted) or bool(changed)

    def _add(self, uid: str, deleted: bool) -> bool:
        """Records that an object belongs to the run, and processes the changes that waited for this object.

        Returns whether one of these changes is relevant.
        """
        whole = self._workloads.whole
        self.history.advance(self._workloads.attempt, whole.resumed if whole is not None else None)
        changed = False
        for change in self._owners.add(uid, self, deleted):
            try:
                changed |= self._see(change)
            except UnreadableObjectError as error:
                # The error is not raised, because it concerns a deferred change, and not the change that was passed to
                # `see`.
                _log.warning("%s cannot be read and is ignored: %s", name_of(change.object), error)
        return changed

    def _see_kueue_workload(self, change: Change) -> bool:
        seen, deleted = read_kueue_workload(change.object), change.verb == "DELETED"
        if self._owners.get(owner_of(change.object)) is not self:
            self._owners.defer(change)
            return False
        if deleted or seen.admitted:
            self.position = None
        before = self._kueue_workloads.pop(seen.uid, None)
        if not deleted:
            self._kueue_workloads[seen.uid] = seen
        return self._add(seen.uid, deleted) or before != (None if deleted else seen)

    def _see_event(self, change: Change) -> bool:
        event = read_event(change.object)
        known = self._owners.get(event.about) is self
        if change.verb == "DELETED" or (not known and event.about and event.kind in FOLLOWED_KINDS):
            self._owners.defer(change)
            return False
        ours = known or not self.name or event.name == self.name or event.name.startswith(f"{self.name}-")
        return ours and self.events.add(event)

    def _see_pod(self, change: Change) -> bool:
        uid, owner, deleted = uid_of(change.object), controller_of(change.object), change.verb == "DELETED"
        known, creator = self._owners.get(uid) is self, self._workloads.creator(owner)
        pod = self._read_pod(change, owner, creator) if uid and creator is not None else None
        if not known:
            if pod is None and self._owners.get(owner.uid) is None:
                self._owners.defer(change)
            if pod is None or deleted:
                return False  # the pod is foreign, or was deleted before this process watched the run
        self.pods_seen.append(change)
        if deleted and self.history.is_surplus(uid):
            self._owners.remove(uid)
            return self.history.forget(uid)
        # If the pod's controller has released the pod, the log of the pod may still be read. A surplus pod stays
        # surplus: a Job releases a pod of another user whose labels do not match the selector of the Job.
        released = pod is None and not self.history.is_surplus(uid)
        changed = self.history.forget(uid) if released else pod is not None and self.history.see(pod)
        return self._add(uid, deleted) or changed

    def _read_pod(self, change: Change, owner: Owner, creator: Workload) -> Pod | None:
        """Returns the state of a pod, or None if `creator` does not plan such a pod."""
        pod = read_pod(change.object, change.verb == "DELETED", owner)
        if pod.index < 0:
            raise UnreadableObjectError("its index is not a number")
        attempt = creator.attempt
        if creator is self._workloads.top:
            attempt = min(pod.attempt, attempt)
        if attempt != pod.attempt:  # rarely true; copying each pod would make `read_pod` a fifth slower
            pod = structs.replace(pod, attempt=attempt)
        return pod if is_planned(creator, pod) else None

    @property
    def workload(self) -> Workload | None:
        """The top-level workload. A TrainJob has the state of its JobSet."""
        return self._workloads.whole

    @property
    def attempt(self) -> int:
        """The number of restarts of the whole gang so far."""
        return self._workloads.attempt

    @property
    def jobs(self) -> Iterable[Workload]:
        """The Jobs of the current attempt."""
        return self._workloads.jobs.values()

    @property
    def pods(self) -> list[Pod]:
        """The newest pod of each place in the current attempt, sorted by group and index."""
        return self.history.current

    @property
    def kueue_workloads(self) -> list[KueueWorkload]:
        """The Kueue Workloads of the run."""
        uids = self._workloads.uids
        found = [each for each in self._kueue_workloads.values() if uids.intersection(each.owners)]
        return [each.naming(self.preemptors.get(each.preemptor, "")) for each in found]

    @property
    def queued(self) -> KueueWorkload | None:
        """The Kueue Workload that is not admitted yet, or None if there is none."""
        return next((each for each in self.kueue_workloads if not each.admitted), None)

    def events_of_former(self) -> list[Event]:
        """Returns the events about unobserved Jobs and pods of the run, such as pods of earlier attempts."""
        top = self._workloads.top
        since = top.created if top is not None else 0.0  # an earlier run may have the same name
        found = map(read_event, self._owners.deferred.events(f"{self.name}-"))
        return [each for each in found if each.last >= since]
