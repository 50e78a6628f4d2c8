"""Decides which objects belong to a workload.

An object belongs to its controller. The controller is the owner with `controller: true`. stepset identifies the
controller by its uid. Labels and annotations are not used, because the creator of a pod chooses its labels and
annotations. The creator also chooses the owners. Therefore a pod alone does not prove that its run has finished. The
status of the pod's controller must agree (docs/design/following.md, Forged objects).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stepset.targets.metadata import RUN
from stepset.unstructured import Fields, part, rows, text
from stepset.watch.cluster.change import Change


class UnreadableObjectError(ValueError):
    """A value of an object is invalid or missing, and the object cannot be used without this value."""


class Owner(NamedTuple):
    """The controller of an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""


_NONE = Owner()


def controller_of(data: Fields) -> Owner:
    """Returns the controller of an object.

    If the object has no controller or several controllers, all fields of the returned Owner are empty.
    """
    found = [row for row in rows(part(data, "metadata"), "ownerReferences") if row.get("controller") is True]
    if len(found) != 1:
        return _NONE
    return Owner(text(found[0], "kind"), text(found[0], "name"), text(found[0], "uid"))


def is_run(data: Fields) -> bool:
    """Returns whether an object is the workload of a run. Such an object has the run's label and no controller."""
    meta = part(data, "metadata")
    return RUN in part(meta, "labels") and not any(row.get("controller") for row in rows(meta, "ownerReferences"))


def run_of(data: Fields) -> str:
    """Returns the name of the run in an object's labels, or "" if the labels contain no such name.

    Events and Kueue's Workloads have no such label. They refer to an object, and belong to the run of this object.
    """
    labels = part(data, "metadata", "labels")
    return text(labels, RUN) or text(labels, "jobset.sigs.k8s.io/jobset-name")


def uid_of(data: Fields) -> str:
    """Returns the uid of an object, or "" if it has none."""
    return text(part(data, "metadata"), "uid")


def name_of(data: Fields) -> str:
    """Returns the kind and the name of an object for a message."""
    return f"{text(data, 'kind')} {text(part(data, 'metadata'), 'name')}"


def owned(objects: Iterable[Fields], uid: str) -> list[Fields]:
    """Returns the workload, the objects that it controls directly or indirectly, and their events.

    Owners come first.
    """
    below: dict[str, list[Fields]] = {}
    itself = list[Fields]()
    for each in objects:
        if uid and uid_of(each) == uid:
            itself.append(each)
        elif above := controller_of(each).uid or text(part(each, "involvedObject"), "uid"):
            below.setdefault(above, []).append(each)
    found = [*itself, *below.pop(uid, ())]
    for each in found:  # the loop appends to `found`
        found += below.pop(uid_of(each), ())
    return found


_MAX_DELETED = 10_000
"""The maximum number of deleted objects of one run whose changes are kept."""


class DeferredChanges:
    """Changes that cannot be assigned yet. Watches are not synchronized, so a pod can be reported before its Job.

    For each object, the last state is kept. If the object was deleted, the deletion is also kept. These changes are
    stored under the uid of the unknown owner. The number of existing objects is not limited, because the watch keeps
    all existing objects in memory in any case. If there were a limit, a user who creates many objects could displace
    the objects of a run. The number of deleted objects is limited to `most_deleted`. The objects that were deleted last
    are kept.
    """

    def __init__(self, most_deleted: int = _MAX_DELETED) -> None:
        self._most_deleted = most_deleted
        self._owner: dict[str, str] = {}
        self._of: dict[str, dict[str, list[Change]]] = {}
        self._deleted: dict[str, None] = {}  # uids, the oldest deletion first

    def __len__(self) -> int:
        return len(self._owner)

    def keep(self, owner: str, uid: str, change: Change) -> None:
        """Keeps a change of the object `uid` until `take(owner)` is called.

        Does nothing if one of the uids is empty.
        """
        if not owner or not uid:
            return
        if change.verb == "DELETED":
            if self._owner.get(uid) == owner:
                self._of[owner][uid] = [*self._of[owner][uid][:1], change]
                self._deleted[uid] = None
                if len(self._deleted) > self._most_deleted:
                    self.drop(next(iter(self._deleted)))
            else:
                self.drop(uid)
            return
        self.drop(uid)
        self._owner[uid] = owner
        self._of.setdefault(owner, {})[uid] = [change]

    def drop(self, uid: str) -> None:
        """Forgets an object."""
        owner = self._owner.pop(uid, None)
        if owner is not None:
            self._deleted.pop(uid, None)
            waiting = self._of[owner]
            del waiting[uid]
            if not waiting:
                del self._of[owner]

    def changes(self) -> list[Change]:
        """Returns the last change of each object that has not been deleted."""
        return [changes[0] for waiting in self._of.values() for changes in waiting.values() if len(changes) == 1]

    def take(self, owner: str) -> list[Change]:
        """Returns the changes that wait for this owner, and forgets them."""
        waiting = self._of.pop(owner, {})
        for uid in waiting:
            del self._owner[uid]
            self._deleted.pop(uid, None)
        return [change for changes in waiting.values() for change in changes]
