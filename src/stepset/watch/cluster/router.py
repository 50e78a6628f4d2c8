"""The changes of a whole namespace, each handed to the run it is about.

An informer uses it (backends/kubernetes/watch/informer.py): what a thousand waiting runs cost depends on what changes,
not on their number.

Watches of different kinds know nothing of each other, so what a change belongs to may come after it: such changes are
kept until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stepset.targets.identity import RUN
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.fields import Fields, part, rows, text
from stepset.watch.cluster.objects import RunObjects, run_of

_UNCLAIMED_EVENTS = 1000
"""Events kept of objects that nobody knows yet; most will be about things that are no run's."""

_FOLLOWED = frozenset({"Pod", "Job", "JobSet", "TrainJob", "StatefulSet", "Workload"})
"""Kinds whose objects are seen themselves, sooner or later: an event is theirs by uid, and no name is guessed."""

_Key = tuple[str, str]


class Router:
    """The runs of a namespace, as their objects were last seen.

    A run is known from its first object to its last, or for as long as it is kept.
    """

    def __init__(self) -> None:
        self._runs: dict[str, RunObjects] = {}
        self._kept: set[str] = set()
        self._homes: dict[str, str] = {}
        self._living: dict[str, set[str]] = {}
        # Whose run is not known yet: by its name, or by the uid of the object it belongs to.
        self._unclaimed: dict[_Key, dict[str, Change]] = {}
        self._events: dict[str, _Key] = {}

    def keep(self, run: str, uid: str) -> bool:
        """Keeps a run until it is forgotten, also when all its objects are gone.

        Args:
            run: its name.
            uid: its workload's.

        Returns:
            Whether its workload has been seen. If not, look for it once (after this call): what is gone already will
            never be heard of, and `objects(run).not_found()` says so.
        """
        self._kept.add(run)
        found = self._runs.get(run)
        if found is None or found.uid not in ("", uid):
            self._runs[run] = found = RunObjects(run, uid)
            self._claim(("run", run))
        found.uid = uid
        return found.workload is not None

    def forget(self, run: str) -> None:
        """Lets go of a run that was kept."""
        self._kept.discard(run)
        if not self._living.get(run):
            self._drop(run)

    @property
    def runs(self) -> list[str]:
        """The names of all runs that are known."""
        return list(self._runs)

    def objects(self, run: str) -> RunObjects | None:
        """What is known of a run; None for one nobody knows."""
        return self._runs.get(run)

    def see(self, changes: Iterable[Change]) -> set[str]:
        """Takes changes.

        Returns:
            The names of the runs of which something is different now; they may be gone already.
        """
        return {run for change in changes for run in self._see(change)}

    def _see(self, change: Change) -> set[str]:
        data = change.object
        if text(data, "kind") == "Event":
            return self._see_event(change)
        uid, gone = text(part(data, "metadata"), "uid"), change.verb == "DELETED"
        run = self._homes.get(uid) or self._run_of(data)
        if run is None:
            if all(key := _key_of(data)):
                self._put_aside(key, uid, change)
            return set()
        if gone and run not in self._runs:
            return set()
        changed = self._hand(run, change)
        if gone:
            self._gone(run, uid)
        elif uid not in self._homes:
            self._homes[uid] = run
            self._living.setdefault(run, set()).add(uid)
            changed |= self._claim(("uid", uid))
        return changed

    def _run_of(self, data: Fields) -> str | None:
        """The run an object belongs to, where that is known."""
        if text(data, "kind") == "Workload":
            owners = [text(row, "uid") for row in rows(part(data, "metadata"), "ownerReferences")]
            return next((self._homes[uid] for uid in owners if uid in self._homes), None)
        run = run_of(data)
        # Whatever else has a JobSet's name may be somebody else's JobSet's.
        ours = run in self._runs or RUN in part(data, "metadata", "labels")
        return run if run and ours else None

    def _hand(self, run: str, change: Change) -> set[str]:
        """Gives a change to a run, which it may be the first to tell of."""
        claimed: set[str] = set()
        if run not in self._runs or self._replaces(run, change):
            self._runs[run] = RunObjects(run)
            claimed = self._claim(("run", run))
        return claimed | {run} if self._runs[run].see(change) else claimed

    def _replaces(self, run: str, change: Change) -> bool:
        """Whether a change is about a new workload by the name of one that nobody keeps."""
        meta = part(change.object, "metadata")
        controlled = any(row.get("controller") is True for row in rows(meta, "ownerReferences"))
        if run in self._kept or controlled or text(meta, "name") != run or change.verb == "DELETED":
            return False
        return self._runs[run].uid not in ("", text(meta, "uid")) and text(change.object, "kind") != "Pod"

    def _see_event(self, change: Change) -> set[str]:
        about, uid = part(change.object, "involvedObject"), text(part(change.object, "metadata"), "uid")
        run = self._homes.get(text(about, "uid"))
        if run is None and text(about, "kind") not in _FOLLOWED:
            run = self._by_name(text(about, "name"))
        if run is not None:
            return self._hand(run, change) if change.verb != "DELETED" else set()
        key = ("uid", text(about, "uid"))
        self._put_aside(key, uid, change)
        self._events.pop(uid, None)
        if change.verb != "DELETED":
            self._events[uid] = key
            if len(self._events) > _UNCLAIMED_EVENTS:
                oldest = next(iter(self._events))
                self._remove(self._events.pop(oldest), oldest)
        return set()

    def _by_name(self, name: str) -> str | None:
        """The run after which an object is called."""
        while name:
            if name in self._runs:
                return name
            name = name.rpartition("-")[0]
        return None

    def _put_aside(self, key: _Key, uid: str, change: Change) -> None:
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
        """Hands on what was put aside for a run, or for an object of one."""
        waiting = self._unclaimed.pop(key, {})
        for uid in waiting:
            self._events.pop(uid, None)
        return self.see(waiting.values())

    def _gone(self, run: str, uid: str) -> None:
        self._homes.pop(uid, None)
        living = self._living.get(run, set())
        living.discard(uid)
        if not living:
            self._living.pop(run, None)
            if run not in self._kept:
                self._drop(run)

    def _drop(self, run: str) -> None:
        self._runs.pop(run, None)


def _key_of(data: Fields) -> _Key:
    """What an object waits for whose run is not known."""
    if text(data, "kind") == "Workload":
        owner = next(iter(rows(part(data, "metadata"), "ownerReferences")), _NOBODY)
        return "uid", text(owner, "uid")
    return "run", run_of(data)


_NOBODY: Mapping[str, str] = {}
