"""Assigns the changes of a whole namespace to runs.

The cost depends on the number of changes, not of runs. Watches of different kinds are not synchronized, so a change may
arrive before the object that identifies its run: such changes are kept until then.
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

    A run is known from its first object until its last object is deleted, and from `keep` until `forget`.
    """

    def __init__(self) -> None:
        self._runs: dict[str, RunObjects] = {}
        self._kept: set[str] = set()
        self._run_by_uid: dict[str, str] = {}
        self._existing: dict[str, set[str]] = {}
        # Changes of unknown runs, by the run's name or by the uid of the object that they belong to. Kept while their
        # objects exist: a limit would let the creator of many objects displace those of a run.
        self._unclaimed: dict[_Key, dict[str, Change]] = {}

    def keep(self, run: str, uid: str) -> bool:
        """Keeps a run until `forget`, even if all its objects are deleted; `uid` is the workload's.

        Returns whether the workload was seen. If not, the caller must read it once after this call, because no watch
        reports an object that was deleted before; if it does not exist, call `objects(run).not_found()`.
        """
        self._kept.add(run)
        found = self._runs.get(run)
        if found is None or found.uid not in ("", uid):
            self._runs[run] = found = RunObjects(run, uid)
            self._claim(("run", run))
        found.uid = uid
        return found.workload is not None

    def forget(self, run: str) -> None:
        """Stops keeping a run."""
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
        """Processes changes; returns the names of the runs that changed, some of which may no longer be known."""
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
        """The run that an object belongs to; None if unknown."""
        if text(data, "kind") == "Workload":
            owners = [text(row, "uid") for row in rows(part(data, "metadata"), "ownerReferences")]
            return next((self._run_by_uid[uid] for uid in owners if uid in self._run_by_uid), None)
        run = run_of(data)
        # An object that names only a JobSet may belong to a JobSet of another tool.
        ours = run in self._runs or RUN in part(data, "metadata", "labels")
        return run if run and ours else None

    def _apply(self, run: str, change: Change) -> set[str]:
        """Applies a change to a run; creates the run if it is new."""
        claimed: set[str] = set()
        if run not in self._runs or self._replaces(run, change):
            self._runs[run] = RunObjects(run)
            claimed = self._claim(("run", run))
        return claimed | {run} if self._runs[run].see(change) else claimed

    def _replaces(self, run: str, change: Change) -> bool:
        """Whether a change shows a new workload with the name of a run that is not kept."""
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
        """The run whose name is a prefix of an object's name."""
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
        """Processes the changes that were deferred for a run, or for an object of one."""
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
    """The key under which a change of an unknown run is deferred."""
    if text(data, "kind") == "Workload":
        owner = next(iter(rows(part(data, "metadata"), "ownerReferences")), {})
        return "uid", text(owner, "uid")
    return "run", run_of(data)
