"""Assigns the changes of a whole namespace to runs.

An object belongs to the run of its owner. Only the top-level workload of a run is identified by its name, and so are
events about objects that no watch reports. The cost depends on the number of changes. It does not depend on the number
of runs. Watches of different kinds are not synchronized. Therefore a change may arrive before the owner of the object.
The router keeps such a change until the owner arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepset.targets.metadata import RUN
from stepset.unstructured import Fields, part, text
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.objects import FOLLOWED_KINDS, RunObjects
from stepset.watch.cluster.ownership import controller_of, owner_of, run_of, uid_of
from stepset.watch.cluster.run.owners import Owners
from stepset.watch.cluster.run.workloads import CREATORS


class Router:
    """The runs of a namespace.

    The router knows a run from the creation of the run's workload until the deletion of its last object. After a call
    of `keep`, the router knows the run until `forget` is called.

    Args:
        pod_seen: a function that is called after each change of a pod of a run.
    """

    def __init__(self, pod_seen: Callable[[RunObjects, Change], None] = lambda run, change: None) -> None:
        self._runs: dict[str, RunObjects] = {}
        self._kept: set[str] = set()
        self._owners = Owners(pod_seen)

    def keep(self, run: str, uid: str) -> bool:
        """Keeps a run until `forget` is called, even if all its objects are deleted.

        Returns whether the workload of the run was observed. If the return value is False, the caller must read the
        workload once after this call, because a watch does not report objects that were deleted before the watch
        started. If the workload does not exist, the caller must call `objects(run).not_found()`.

        Args:
            uid: the uid of the run's workload.
        """
        self._kept.add(run)
        found = self._runs.get(run)
        if found is None or found.uid != uid:
            found = self._start(run, uid)
        return found.workload is not None

    def forget(self, run: str) -> None:
        """Reverts `keep`. The run is dropped if none of its objects exists."""
        self._kept.discard(run)
        self._drop_if_deleted(run)

    @property
    def runs(self) -> list[str]:
        """The names of all known runs."""
        return list(self._runs)

    def objects(self, run: str) -> RunObjects | None:
        return self._runs.get(run)

    def knows(self, uid: str) -> bool:
        """Returns whether an object belongs to a known run."""
        return self._owners.get(uid) is not None

    def existing(self, run: str) -> list[str]:
        """Returns the uids of the objects of a run that were not deleted."""
        return list(self._owners.existing(self._runs[run]))

    def see(self, changes: Iterable[Change]) -> set[str]:
        """Processes changes. Returns the names of the runs that changed. Some of these runs may no longer be known."""
        return {run.name for change in changes if (run := self._run_of(change)) is not None and self._see(run, change)}

    def _see(self, run: RunObjects, change: Change) -> bool:
        try:
            return run.see(change)
        finally:
            if change.verb == "DELETED":
                self._drop_if_deleted(run.name)

    def _run_of(self, change: Change) -> RunObjects | None:
        """Returns the run of a changed object. If the run is not known yet, defers the change and returns None."""
        data = change.object
        kind = text(data, "kind")
        if kind == "Event":
            run = self._owners.get(owner_of(data)) or self._by_name(part(data, "involvedObject"))
        elif (run := self._owners.get(uid_of(data))) is None:
            if kind not in ("Pod", "Workload") and controller_of(data).kind not in CREATORS:
                return self._of_workload(change)
            run = self._owners.get(owner_of(data))
        if run is None:
            self._owners.defer(change, keeps_deleted=run_of(data) in self._runs)
        return run

    def _of_workload(self, change: Change) -> RunObjects | None:
        """Returns the run of a top-level workload that is not known yet. Creates the run if it is new.

        If another run of this name is kept (`keep`), returns the kept run.
        """
        meta, name = part(change.object, "metadata"), run_of(change.object)
        run = self._runs.get(name)
        if run is not None and (run.uid == uid_of(change.object) or name in self._kept):
            return run
        named = RUN in part(meta, "labels") and text(meta, "name") == name
        return self._start(name, uid_of(change.object)) if named and change.verb != "DELETED" else None

    def _by_name(self, about: Fields) -> RunObjects | None:
        """Returns the run whose name is a prefix of an object's name, or None if the object has a watched kind."""
        name = "" if text(about, "kind") in FOLLOWED_KINDS else text(about, "name")
        while name:
            if (run := self._runs.get(name)) is not None:
                return run
            name = name.rpartition("-")[0]
        return None

    def _start(self, name: str, uid: str) -> RunObjects:
        """Adds a run. Forgets an earlier run of the same name."""
        if (before := self._runs.get(name)) is not None:
            self._owners.forget(before)
        self._runs[name] = run = RunObjects(name, uid, self._owners)
        return run

    def _drop_if_deleted(self, name: str) -> None:
        run = self._runs.get(name)
        if run is not None and name not in self._kept and not self._owners.existing(run):
            self._owners.forget(self._runs.pop(name))
