"""Assigns the changes of a whole namespace to runs.

The cost depends on the number of changes. It does not depend on the number of runs. Watches of different kinds are not
synchronized. Therefore a change may arrive before the object that identifies its run. The router keeps such a change
until this object arrives.
"""

from __future__ import annotations

from collections.abc import Iterable

from stepset.targets.metadata import RUN
from stepset.unstructured import Fields, part, rows, text
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.objects import FOLLOWED_KINDS, RunObjects
from stepset.watch.cluster.ownership import run_of

_Key = tuple[str, str]


class Router:
    """The runs of a namespace.

    The router knows a run from the creation of the run's first object until the deletion of its last object. After a
    call of `keep`, the router knows the run until `forget` is called.
    """

    def __init__(self) -> None:
        self._runs: dict[str, RunObjects] = {}
        self._kept: set[str] = set()
        self._run_by_uid: dict[str, str] = {}
        self._existing: dict[str, set[str]] = {}
        # The changes of unknown runs. The key is the name of the run, or the uid of the owner of the changed object. A
        # change is kept while its object exists. If the number of changes were limited, a user who creates many objects
        # could displace the changes of a run.
        self._unclaimed: dict[_Key, dict[str, Change]] = {}

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
        if found is None or found.uid not in ("", uid):
            self._runs[run] = found = RunObjects(run, uid)
            self._claim(("run", run))
        found.uid = uid
        return found.workload is not None

    def forget(self, run: str) -> None:
        """Reverts `keep`. The run is dropped if none of its objects exists."""
        self._kept.discard(run)
        if not self._existing.get(run):
            self._runs.pop(run, None)

    @property
    def runs(self) -> list[str]:
        """The names of all known runs."""
        return list(self._runs)

    def objects(self, run: str) -> RunObjects | None:
        return self._runs.get(run)

    def see(self, changes: Iterable[Change]) -> set[str]:
        """Processes changes. Returns the names of the runs that changed. Some of these runs may no longer be known."""
        return {run for change in changes for run in self._see(change)}

    def _see(self, change: Change) -> set[str]:
        data = change.object
        if text(data, "kind") == "Event":
            return self._see_event(change)
        uid, deleted = text(part(data, "metadata"), "uid"), change.verb == "DELETED"
        run = self._run_by_uid.get(uid) or self._run_of(data)
        if run is None:
            if all(key := _key_of(data)):
                self._defer(key, uid, change)
            return set()
        if deleted and run not in self._runs:
            return set()
        changed = self._apply(run, change)
        if deleted:
            self._forget_object(run, uid)
        elif uid not in self._run_by_uid:
            self._run_by_uid[uid] = run
            self._existing.setdefault(run, set()).add(uid)
            changed |= self._claim(("uid", uid))
        return changed

    def _run_of(self, data: Fields) -> str | None:
        """Returns the name of the run that an object belongs to, or None if it is unknown."""
        if text(data, "kind") == "Workload":
            owners = [text(row, "uid") for row in rows(part(data, "metadata"), "ownerReferences")]
            return next((self._run_by_uid[uid] for uid in owners if uid in self._run_by_uid), None)
        run = run_of(data)
        # An object without the label `RUN` may belong to a JobSet of another tool.
        ours = run in self._runs or RUN in part(data, "metadata", "labels")
        return run if run and ours else None

    def _apply(self, run: str, change: Change) -> set[str]:
        """Applies a change to a run. Creates the run if it is new."""
        claimed: set[str] = set()
        if run not in self._runs or self._replaces(run, change):
            self._runs[run] = RunObjects(run)
            claimed = self._claim(("run", run))
        return claimed | {run} if self._runs[run].see(change) else claimed

    def _replaces(self, run: str, change: Change) -> bool:
        """Returns whether a change shows that a new workload has the name of a known run.

        Returns False if the known run is kept (`keep`).
        """
        meta = part(change.object, "metadata")
        controlled = any(row.get("controller") is True for row in rows(meta, "ownerReferences"))
        if run in self._kept or controlled or text(meta, "name") != run or change.verb == "DELETED":
            return False
        return self._runs[run].uid not in ("", text(meta, "uid")) and text(change.object, "kind") != "Pod"

    def _see_event(self, change: Change) -> set[str]:
        about, uid = part(change.object, "involvedObject"), text(part(change.object, "metadata"), "uid")
        run = self._run_by_uid.get(text(about, "uid"))
        if run is None and text(about, "kind") not in FOLLOWED_KINDS:
            run = self._by_name(text(about, "name"))
        if run is None:
            self._defer(("uid", text(about, "uid")), uid, change)
            return set()
        if change.verb == "DELETED" and run not in self._runs:
            return set()
        return self._apply(run, change)

    def _by_name(self, name: str) -> str | None:
        """Returns the run whose name is a prefix of an object's name."""
        while name:
            if name in self._runs:
                return name
            name = name.rpartition("-")[0]
        return None

    def _defer(self, key: _Key, uid: str, change: Change) -> None:
        if change.verb == "DELETED":
            self._remove(key, uid)
        else:
            self._unclaimed.setdefault(key, {})[uid] = change

    def _remove(self, key: _Key, uid: str) -> None:
        waiting = self._unclaimed.get(key, {})
        waiting.pop(uid, None)
        if not waiting:
            self._unclaimed.pop(key, None)

    def _claim(self, key: _Key) -> set[str]:
        """Processes the changes that were deferred for a run or for an object of a run."""
        return self.see(self._unclaimed.pop(key, {}).values())

    def _forget_object(self, run: str, uid: str) -> None:
        self._run_by_uid.pop(uid, None)
        existing = self._existing.get(run, set())
        existing.discard(uid)
        if not existing:
            self._existing.pop(run, None)
            if run not in self._kept:
                self._runs.pop(run, None)


def _key_of(data: Fields) -> _Key:
    """Returns the key under which a change of an unknown run is deferred."""
    if text(data, "kind") == "Workload":
        owner = next(iter(rows(part(data, "metadata"), "ownerReferences")), {})
        return "uid", text(owner, "uid")
    return "run", run_of(data)
