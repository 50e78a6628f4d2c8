"""Assigns the pods of an attempt to places, determines the surplus pods, and keeps pods of earlier attempts.

A place consists of the name of a group and the index of a pod in this group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, structs

from stepset.watch.cluster.pods import Place, Pod

_NEXT = 1e-5  # the difference between two deletions in the same second, in seconds
_ENDS_KEPT, _ATTEMPTS_KEPT = 16, 8  # the number of pods of each earlier attempt, and the number of attempts


class PodPlaces:
    """The pods of one attempt, by their place.

    If two pods claim the same place, one of the two pods is surplus and is ignored. Only pods of the same place are
    compared. Therefore the cost of a change does not depend on the number of places.

    The methods with the argument `ignored` do not compare the pods for which this function returns True.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._of: dict[Place, dict[str, Pod]] = {}
        self._surplus: set[str] = set()
        self._deleted: dict[Place, str] = {}
        self._replaced: dict[Place, int] = {}

    def __iter__(self) -> Iterator[Pod]:
        """Yields the pods that are not surplus."""
        return iter(self._pods.values())

    def get(self, uid: str) -> Pod | None:
        """Returns a pod, or None if there is no pod with this uid. Surplus pods are not returned."""
        return self._pods.get(uid)

    def is_surplus(self, uid: str) -> bool:
        """Returns whether a pod claims the place of another pod, in this attempt or an earlier one."""
        return uid in self._surplus

    def put(self, pod: Pod, ignored: Callable[[Pod], bool]) -> Pod | None:
        """Adds a pod, or replaces its state. Determines which pods of its place are surplus.

        If the pod is new and replaces a pod that no longer exists, forgets and returns the replaced pod.
        """
        before, replaced = self._pods.get(pod.uid), None
        if before is None:
            replaced = self._take_replaced(pod)
        elif before.place != pod.place:
            self._take(before)
        self._pods[pod.uid] = pod
        here = self._of.setdefault(pod.place, {})
        here[pod.uid] = pod
        if pod.deleted:
            self._deleted[pod.place] = pod.uid
        if len(here) > 1:
            for surplus in _fold(here.values(), ignored)[2]:
                self._take(surplus)
                if not surplus.deleted:
                    self._surplus.add(surplus.uid)
        return replaced

    def remove(self, uid: str) -> bool:
        """Forgets a pod. Returns whether the pod was known and was not surplus."""
        self._surplus.discard(uid)
        pod = self._pods.get(uid)
        if pod is not None:
            self._take(pod)
        return pod is not None

    def clear(self) -> None:
        """Forgets all pods, because another attempt begins. `is_surplus` still recognizes surplus pods."""
        for each in (self._pods, self._of, self._deleted, self._replaced):
            each.clear()

    def newest(self, ignored: Callable[[Pod], bool]) -> tuple[list[Pod], dict[Place, int]]:
        """Returns the newest pod of each place, sorted by place, and the number of earlier pods of each place.

        Ignored pods count as earlier pods.
        """
        newest, counts = list[Pod](), dict(self._replaced)
        for place in sorted(self._of):
            pod, count, _ = _fold(self._of[place].values(), ignored)
            if count:
                counts[place] = counts.get(place, 0) + count
            if pod is not None:
                newest.append(pod)
        return newest, counts

    def _take_replaced(self, seen: Pod) -> Pod | None:
        deleted = self._pods.get(self._deleted.get(seen.place, ""))
        if deleted is None or _keeps_place(deleted, seen):
            return None
        self._take(deleted)
        del self._deleted[seen.place]
        self._replaced[seen.place] = self._replaced.get(seen.place, 0) + 1
        return deleted

    def _take(self, pod: Pod) -> None:
        del self._pods[pod.uid]
        here = self._of[pod.place]
        del here[pod.uid]
        if not here:
            del self._of[pod.place]


class EarlierPods:
    """The pods that explain the failures of the last attempts before the current one. Their number is limited."""

    def __init__(self) -> None:
        self._of: dict[int, dict[str, Pod]] = {}

    def get(self, uid: str) -> Pod | None:
        """Returns a pod, or None if there is no pod with this uid."""
        return next((pods[uid] for pods in self._of.values() if uid in pods), None)

    def keep(self, pod: Pod) -> bool:
        """Adds a pod, or replaces its state. Returns whether anything has changed."""
        while len(self._of) > _ATTEMPTS_KEPT:
            del self._of[min(self._of)]
        kept = self._of.setdefault(pod.attempt, {})
        before = kept.get(pod.uid)
        if before == pod or (before is None and len(kept) >= _ENDS_KEPT):
            return False
        kept[pod.uid] = pod
        return True

    def attempts(self) -> list[int]:
        """Returns the numbers of the attempts, the earliest first."""
        return sorted(self._of)

    def of(self, attempt: int) -> list[Pod]:
        """Returns the pods of an attempt."""
        return list(self._of.get(attempt, {}).values())

    def uids(self) -> set[str]:
        """Returns the uids of all pods."""
        return {uid for pods in self._of.values() for uid in pods}


def _fold(here: Iterable[Pod], ignored: Callable[[Pod], bool]) -> tuple[Pod | None, int, list[Pod]]:
    """Returns the newest pod of one place, the number of earlier pods, and the surplus pods."""
    newest, count, surplus = None, 0, list[Pod]()
    for pod in sorted(here, key=lambda pod: (pod.created, not pod.deleted, pod.uid)):
        if ignored(pod):
            count += 1
        elif newest is None or not _keeps_place(newest, pod):
            count += newest is not None
            newest = pod
        else:
            surplus.append(pod)
    return newest, count, surplus


def _keeps_place(pod: Pod, other: Pod) -> bool:
    """Returns whether a pod keeps its place although a newer pod claims it.

    A Job replaces only pods that have failed or are being deleted. Therefore, if the older pod runs or
    has succeeded, the newer pod was created by a user, and the Job will delete the newer pod. In a StatefulSet or a Job
    of Volcano, the name of a pod contains the place of the pod. Therefore two of these pods cannot claim the same
    place.
    """
    if pod.name == other.name:
        return False
    return pod.succeeded or not (pod.over or pod.deletion_requested is not None)


class DeletionTimes(Struct, frozen=True):
    """The times at which the deletions of pods were requested, in the order of the requests.

    The API server's times have a resolution of one second. A watch returns the requests in their order. Therefore the
    time of each observed request is slightly later than the time of the request before it in the same second.

    A new list, for example after status 410 of a watch, returns the pods in the order of their names. Therefore this
    order may be wrong for requests that only a new list has reported.

    Attributes:
        period: the longest time that a pod had to end, in seconds. 0 until a deletion is observed.
        killed: whether a pod was deleted without waiting for the end of its command.
        last: the time of the last request.
    """

    period: float = 0.0
    killed: bool = False
    last: float = 0.0

    def see(self, before: Pod | None, seen: Pod) -> tuple[DeletionTimes, Pod]:
        """Returns the times after an observation, and the observed pod with the time of the request for its deletion.

        Args:
            before: the state of the same pod that was observed before, if there is one.
        """
        requested, last = seen.deletion_requested, self.last
        period = 0.0 if seen.due is None or requested is None else seen.due - requested
        # The kubelet sets the period of a pod to 0 and removes the pod only after the pod has exited.
        at_once = seen.deleted or (seen.due is not None and not period)
        killed = self.killed or ((before or seen).running and seen.end is None and at_once)
        if before is not None and requested is not None:
            if (known := before.deletion_requested) is not None:
                # The kubelet changes the deletion time after the pod has exited.
                requested = known if requested >= math.floor(known) else requested
            elif before.end is not None:
                requested = None  # the pod exited before the request, so the deletion is not the cause of the exit
            else:
                requested = last + _NEXT if math.floor(last) == requested else requested
                last = max(last, requested)
            seen = structs.replace(seen, deletion_requested=requested)
        return DeletionTimes(max(self.period, period), killed, last), seen
