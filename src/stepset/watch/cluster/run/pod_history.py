"""`PodHistory`, the pods of a run: current pods, the pods that they have replaced, and pods of earlier attempts."""

from __future__ import annotations

import math
from collections import deque

from stepset.watch.cluster.pods import Place, Pod, relevance
from stepset.watch.cluster.run.pod_places import DeletionTimes, EarlierPods, PodPlaces

_DEPARTED_KEPT = 8


class PodHistory:
    """The last observed states of the pods of a run. Ignores pods that claim the place of another pod.

    Attributes:
        earlier: the pods that explain the failures of earlier attempts.
        started: a mapping from each group to the time at which a command of the group started first. The time may be in
            an earlier attempt.
        deletions: the deletions of the run's pods.
    """

    def __init__(self) -> None:
        self.earlier = EarlierPods()
        self.started: dict[str, float] = {}
        self.deletions = DeletionTimes()
        self._attempt = 0
        self._resumed: float | None = None
        self._places = PodPlaces()
        self._departed: deque[Pod] = deque(maxlen=_DEPARTED_KEPT)
        self._terminating: dict[str, Pod] = {}
        self._present: tuple[list[Pod], dict[Place, int]] | None = None

    def see(self, seen: Pod) -> bool:
        """Adds a pod, or updates its state. Returns whether the state of the run has changed."""
        if self._places.is_surplus(seen.uid):
            return False
        if seen.due is not None and not seen.deleted:
            self._terminating[seen.uid] = seen
        else:
            self._terminating.pop(seen.uid, None)
        before = self._places.get(seen.uid)
        self.deletions, seen = self.deletions.see(before or self.earlier.get(seen.uid), seen)
        if seen.attempt < self._attempt:
            return self.earlier.keep(seen)
        if before == seen or (before is None and seen.deleted):
            return False
        if (replaced := self._places.put(seen, self._belongs_to_suspension)) is not None:
            self._departed.append(replaced)
        self._present = None
        if self._places.is_surplus(seen.uid):
            return False
        if seen.started is not None:
            self.started[seen.group] = min(seen.started, self.started.get(seen.group, seen.started))
        return True

    def forget(self, uid: str) -> bool:
        """Forgets a pod of the current attempt. Returns whether the state of the run has changed."""
        self._terminating.pop(uid, None)
        self._present = None
        return self._places.remove(uid)

    def advance(self, attempt: int, resumed: float | None) -> None:
        """Updates the attempt and the end of the last suspension.

        Of the pods of the previous attempt, keeps only those that explain its failure.
        """
        if resumed != self._resumed:
            self._resumed, self._present = resumed, None
        if attempt <= self._attempt:
            return
        old = sorted(self._places, key=relevance)
        self._attempt, self._present = attempt, None
        self._places.clear()
        self._departed.clear()
        for pod in old:
            self.earlier.keep(pod)

    def is_surplus(self, uid: str) -> bool:
        """Returns whether a pod claims the place of another pod."""
        return self._places.is_surplus(uid)

    @property
    def current(self) -> list[Pod]:
        """The newest pod of each place in the current attempt, sorted by group and index."""
        return self._newest()[0]

    def _newest(self) -> tuple[list[Pod], dict[Place, int]]:
        """Returns the newest pod of each place, and the number of pods that each place had before."""
        if self._present is None:
            self._present = self._places.newest(self._belongs_to_suspension)
        return self._present

    def _belongs_to_suspension(self, pod: Pod) -> bool:
        """Returns whether a suspension of the run that has already ended caused the deletion of the pod."""
        if self._resumed is None or pod.deletion_requested is None:
            return False
        # `_resumed` is a whole second, and DeletionTimes may have added a fraction of a second to the other time.
        return math.floor(pod.deletion_requested) <= self._resumed and pod.created < self._resumed

    def replaced(self, pod: Pod) -> int:
        """Returns how many pods this pod has replaced in the current attempt."""
        return self._newest()[1].get(pod.place, 0)

    def replacements(self, group: str) -> int:
        """Returns how many pods of a group were replaced in the current attempt."""
        return sum(count for (name, _), count in self._newest()[1].items() if name == group)

    @property
    def known(self) -> set[str]:
        """The uids of all pods that a status may mention."""
        return {*(pod.uid for pod in self._places), *self.earlier.uids(), *(pod.uid for pod in self._departed)}

    def every_pod(self) -> list[Pod]:
        """Returns the pods of the current attempt, including replaced pods that still exist."""
        return list(self._places)

    def predecessors(self) -> list[Pod]:
        """Returns the replaced pods of the current attempt. Returns at most _DEPARTED_KEPT pods."""
        present = {pod.uid for pod in self.current}
        others = [*self._departed, *(pod for pod in self._places if pod.uid not in present)]
        return [pod for pod in others if not self._belongs_to_suspension(pod)][-_DEPARTED_KEPT:]

    def terminating(self) -> list[Pod]:
        """Returns the pods that still exist although their deletion was requested. Contains pods of all attempts."""
        return [pod for pod in self._terminating.values() if not self._places.is_surplus(pod.uid)]
