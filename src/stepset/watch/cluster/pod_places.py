"""Which pod of an attempt has which place, and which pods are surplus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stepset.watch.cluster.pods import Place, Pod


class PodPlaces:
    """The pods of one attempt by place: their group, and the index in it.

    Pods that claim the place of another are surplus: they do not count. Only the pods of one place are compared, so the
    cost of a change does not depend on the number of places.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._of: dict[Place, dict[str, Pod]] = {}
        self._surplus: set[str] = set()
        self._deleted: dict[Place, str] = {}
        self._replaced: dict[Place, int] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods or uid in self._surplus

    def __iter__(self) -> Iterator[Pod]:
        """The pods that are not known to be surplus."""
        return (pod for pod in self._pods.values() if pod.uid not in self._surplus)

    def get(self, uid: str) -> Pod | None:
        """Returns a pod; None if there is none."""
        return self._pods.get(uid)

    def is_surplus(self, uid: str) -> bool:
        """Whether a pod is known to claim the place of another, in this attempt or an earlier one."""
        return uid in self._surplus

    def put(self, pod: Pod) -> None:
        """Adds a pod, or replaces its state."""
        before = self._pods.get(pod.uid)
        if before is not None and before.place != pod.place:
            self._take(before)
        self._pods[pod.uid] = pod
        self._of.setdefault(pod.place, {})[pod.uid] = pod
        if pod.deleted:
            self._deleted[pod.place] = pod.uid

    def remove(self, uid: str) -> bool:
        """Forgets a pod; returns whether it was known."""
        self._surplus.discard(uid)
        pod = self._pods.get(uid)
        if pod is not None:
            self._take(pod)
        return pod is not None

    def clear(self) -> None:
        """Forgets all pods, because another attempt begins; `is_surplus` still recognizes surplus pods."""
        for each in (self._pods, self._of, self._deleted, self._replaced):
            each.clear()

    def take_replaced(self, seen: Pod, ignored: Callable[[Pod], bool]) -> Pod | None:
        """Removes and returns the deleted pod that a new one replaces; None if it replaces none.

        `ignored` is that of `newest`.
        """
        deleted = self._pods.get(self._deleted.get(seen.place, ""))
        if deleted is None or _keeps_place(deleted, seen) or deleted.uid in self._surplus:
            return None
        self._newest(seen.place, ignored)  # finds surplus pods
        if deleted.uid not in self._pods or deleted.uid in self._surplus:
            return None
        self._take(deleted)
        del self._deleted[seen.place]
        self._replaced[seen.place] = self._replaced.get(seen.place, 0) + 1
        return deleted

    def newest(self, ignored: Callable[[Pod], bool]) -> tuple[list[Pod], dict[Place, int]]:
        """Returns the newest pod of each place, ordered by place, and how many pods each place had before it.

        `ignored` selects pods that are counted, but are never the newest.
        """
        newest, counts = list[Pod](), dict(self._replaced)
        for place in sorted(self._of):
            pod, count = self._newest(place, ignored)
            if count:
                counts[place] = counts.get(place, 0) + count
            if pod is not None:
                newest.append(pod)
        return newest, counts

    def _newest(self, place: Place, ignored: Callable[[Pod], bool]) -> tuple[Pod | None, int]:
        newest, count = None, 0
        here = self._of.get(place, {}).values()
        for pod in sorted(here, key=lambda pod: (pod.created, not pod.deleted, pod.uid)):
            if pod.uid in self._surplus:
                continue
            if ignored(pod):
                count += 1
            elif newest is None or not _keeps_place(newest, pod):
                count += newest is not None
                newest = pod
            elif pod.deleted:
                self._take(pod)
            else:
                self._surplus.add(pod.uid)
        return newest, count

    def _take(self, pod: Pod) -> None:
        del self._pods[pod.uid]
        here = self._of[pod.place]
        del here[pod.uid]
        if not here:
            del self._of[pod.place]


def _keeps_place(pod: Pod, other: Pod) -> bool:
    """Whether a pod keeps its place although a newer pod claims it.

    A Job replaces only pods that failed or are being deleted. If the older pod runs or succeeded, the Job did not
    create the newer pod and will delete it. StatefulSets and Volcano's Jobs name their pods by their
    place, so no two pods can claim the same place.
    """
    if pod.name == other.name:
        return False
    return pod.succeeded or not (pod.over or pod.deletion_requested is not None)
