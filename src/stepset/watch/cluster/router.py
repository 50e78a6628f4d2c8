"""Assigns the changes of a whole namespace to runs.

An object belongs to the run of its owner. Only the top-level workload of a run is identified by its name, and so are
events about objects that no watch reports. The cost depends on the number of changes. It does not depend on the number
of runs. Watches of different kinds are not synchronized. Therefore a change may arrive before the owner of the object.
The router keeps such a change until the owner arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from stepset.targets.metadata import RUN
from stepset.targets.workload_kinds import CREATORS
from stepset.unstructured import Fields, part, text
from stepset.watch.cluster.objects import FOLLOWED_KINDS, RunObjects
from stepset.watch.cluster.ownership import controller_of, owner_of, run_of, uid_of
from stepset.watch.cluster.run.owners import Owners
from stepset.watch.list_watch import Change


class Seen(NamedTuple):
    """The result of `Router.see`.

    Args:
        runs: the names of the runs that changed. Some of these runs may no longer be known.
        pods: the changes of pods of runs, each with its run. Includes the deferred changes of the pods whose owner has
            become known.
    """

    runs: Set[str]
    pods: Sequence[tuple[RunObjects, Change]]


class Router:
    """The runs of a namespace.

    The router knows a run from the creation of the run's workload until the deletion of its last object. After a call
    of `keep`, the router knows the run until `forget` is called. Several runs may have the same name. Each of them has
    its own objects.
    """

    def __init__(self) -> None:
        self._named: dict[str, list[RunObjects]] = {}
        self._kept: set[RunObjects] = set()
        self._owners: Owners[RunObjects] = Owners()

    def keep(self, run: str, uid: str) -> bool:
        """Keeps a run until `forget` is called, even if all its objects are deleted.

        Returns whether the workload of the run was observed. If the return value is False, the caller must read the
        workload once after this call, because a watch does not report objects that were deleted before the watch
        started. If the workload does not exist, the caller must call `objects(run, uid).not_found()`.

        Args:
            uid: the uid of the run's workload.
        """
        found = self.objects(run, uid) or self._start(run, uid)
        self._kept.add(found)
        return found.workload is not None

    def forget(self, run: str) -> None:
        """Reverts all calls of `keep` with this name. Drops the runs of this name that have no objects."""
        self._kept.difference_update(self._named.get(run, ()))
        self._drop_deleted(run)

    @property
    def runs(self) -> list[str]:
        """The names of all known runs."""
        return list(self._named)

    def objects(self, run: str, uid: str = "") -> RunObjects | None:
        """Returns the run with this name, or None if it is not known.

        `uid` is the uid of the run's workload. By default, the method returns the first kept run of this name. If no
        run of this name is kept, the method returns the newest run of this name.
        """
        named = [each for each in self._named.get(run, ()) if uid in ("", each.uid)]
        return next((each for each in named if each in self._kept), named[-1] if named else None)

    def existing(self, run: RunObjects) -> list[str]:
        """Returns the uids of the objects of a run that were not deleted."""
        return list(self._owners.existing(run))

    def see(self, changes: Iterable[Change]) -> Seen:
        """Processes changes, and returns which runs and which of their pods have changed."""
        changed, pods = set[str](), list[tuple[RunObjects, Change]]()
        for change in changes:
            for run in self._runs_of(change):
                if run.see(change):
                    changed.add(run.name)
                pods += [(run, pod) for pod in run.pods_seen]
                if change.verb == "DELETED":
                    self._drop_deleted(run.name)
        return Seen(changed, pods)

    def _runs_of(self, change: Change) -> Sequence[RunObjects]:
        """Returns the runs that a change concerns. If the run of an object is not known yet, defers the change.

        The change of a top-level workload concerns all runs of its name. Kept runs learn from the workload of a new run
        that their own workload does not exist any more.
        """
        data = change.object
        uid, kind = uid_of(data), text(data, "kind")
        run = self._owners.get(uid)
        if run is not None and run.uid == uid:
            return self._named[run.name]
        if run is None:
            if kind not in ("Event", "Pod", "Workload") and controller_of(data).kind not in CREATORS:
                return self._of_new_workload(change)
            run = self._owners.get(owner_of(data))
        if run is not None:
            return (run,)
        if kind == "Event" and (named := self._by_name(part(data, "involvedObject"))):
            return named
        self._owners.defer(change, keeps_deleted=run_of(data) in self._named)
        return ()

    def _of_new_workload(self, change: Change) -> Sequence[RunObjects]:
        """Returns the runs with the name of a top-level workload. Adds the run of the workload."""
        meta, name, uid = part(change.object, "metadata"), run_of(change.object), uid_of(change.object)
        ours = RUN in part(meta, "labels") and text(meta, "name") == name and change.verb != "DELETED"
        if ours and self.objects(name, uid) is None:
            self._start(name, uid)
        return self._named.get(name, ())

    def _by_name(self, about: Fields) -> Sequence[RunObjects]:
        """Returns the runs whose name is a prefix of an object's name. Returns () if the object has a watched kind."""
        name = "" if text(about, "kind") in FOLLOWED_KINDS else text(about, "name")
        while name and name not in self._named:
            name = name.rpartition("-")[0]
        return self._named.get(name, ())

    def _start(self, name: str, uid: str) -> RunObjects:
        run = RunObjects(name, uid, self._owners)
        self._named.setdefault(name, []).append(run)
        return run

    def _drop_deleted(self, name: str) -> None:
        left = list[RunObjects]()
        for run in self._named.pop(name, ()):
            if run in self._kept or self._owners.existing(run):
                left.append(run)
            else:
                self._owners.forget(run)
        if left:
            self._named[name] = left
