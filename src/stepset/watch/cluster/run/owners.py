"""`Owners`, the index of the objects of all runs, and the changes of objects whose owner is not known yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from stepset.unstructured import Fields, part, text
from stepset.watch.cluster.ownership import owner_of, uid_of
from stepset.watch.list_watch import Change

_MAX_DELETED = 10_000
"""The maximum number of deleted objects whose changes are deferred, and of deleted objects of one run in `Owners`."""


class DeferredChanges:
    """Changes that cannot be assigned yet. Watches are not synchronized, so a pod can be reported before its Job.

    For each object, the last state is kept. If the object was deleted, the deletion is also kept. These changes are
    stored under the uid of the owner. The number of existing objects is not limited, because the watch keeps all
    existing objects in memory in any case. If there were a limit, a user who creates many objects could displace the
    objects of a run. Of the deleted objects, the last `_MAX_DELETED` are kept.
    """

    def __init__(self) -> None:
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
                if len(self._deleted) > _MAX_DELETED:
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

    def events(self, prefix: str) -> list[Fields]:
        """Returns the events about objects whose names begin with `prefix`."""
        kept = (changes[0].object for waiting in self._of.values() for changes in waiting.values())
        events = (each for each in kept if text(each, "kind") == "Event")
        return [each for each in events if text(part(each, "involvedObject"), "name").startswith(prefix)]

    def take(self, owner: str) -> list[Change]:
        """Returns the changes that wait for this owner, and forgets them."""
        waiting = self._of.pop(owner, {})
        for uid in waiting:
            del self._owner[uid]
            self._deleted.pop(uid, None)
        return [change for changes in waiting.values() for change in changes]


Run = TypeVar("Run")


class Owners(Generic[Run]):
    """The runs of all known objects by uid, and the deferred changes of objects whose owner is not known.

    All runs of a router share one instance. A deleted object remains known, because watches are not synchronized: a
    pod can change after the deletion of its Job was reported. Of the deleted objects of a run, the last `_MAX_DELETED`
    remain known.

    Attributes:
        deferred: the deferred changes.
    """

    def __init__(self) -> None:
        self._run: dict[str, Run] = {}
        self._existing: dict[Run, set[str]] = {}
        self._deleted: dict[Run, dict[str, None]] = {}  # the oldest deletion first
        self.deferred = DeferredChanges()

    def get(self, uid: str) -> Run | None:
        """Returns the run of an object, or None if the object is not known."""
        return self._run.get(uid)

    def existing(self, run: Run) -> Iterable[str]:
        """Returns the uids of the objects of a run that were not deleted."""
        return self._existing.get(run, ())

    def add(self, uid: str, run: Run, deleted: bool) -> list[Change]:
        """Records that an object belongs to a run. Returns and forgets the deferred changes of the object's dependents.

        `deleted` states whether the object was deleted.
        """
        self._run[uid] = run
        existing, gone = self._existing.setdefault(run, set()), self._deleted.setdefault(run, {})
        if deleted:
            existing.discard(uid)
            gone[uid] = None
            if len(gone) > _MAX_DELETED:
                self.remove(next(iter(gone)))
        elif uid not in existing:
            existing.add(uid)
            gone.pop(uid, None)
        self.deferred.drop(uid)
        return self.deferred.take(uid)

    def remove(self, uid: str) -> None:
        """Forgets an object."""
        run = self._run.pop(uid, None)
        if run is not None:
            self._existing[run].discard(uid)
            self._deleted[run].pop(uid, None)

    def forget(self, run: Run) -> None:
        """Forgets all objects of a run."""
        for uid in (*self._existing.pop(run, ()), *self._deleted.pop(run, ())):
            del self._run[uid]

    def defer(self, change: Change, keeps_deleted: bool = True) -> None:
        """Keeps a change until the owner of the object is known, or changes.

        A deleted event is forgotten. If `keeps_deleted` is false, this also applies to any other deleted object.
        """
        uid = uid_of(change.object)
        if change.verb == "DELETED" and (not keeps_deleted or text(change.object, "kind") == "Event"):
            self.deferred.drop(uid)
        else:
            self.deferred.keep(owner_of(change.object), uid, change)
