"""`Informer`, which keeps the current objects of runs in memory. An informer uses one reflector for each collection.

There are two kinds of informers. An informer of a namespace uses the same connections to follow any number of runs.
An informer of a run requests only the objects of one run. An informer can be used in one event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import anyio

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import access_note
from stepset.backends.kubernetes.api.refusal_grace import RefusalGrace
from stepset.backends.kubernetes.api.replies import NOT_FOUND, RefusedError
from stepset.backends.kubernetes.api.resources import QUEUE_WORKLOADS, Manifest, resource_of
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pods import LogPod, log_pod
from stepset.backends.kubernetes.watch.liveness import Probe, ServerLiveness
from stepset.backends.kubernetes.watch.queue_position import QueuePositions
from stepset.backends.kubernetes.watch.reflector import Reflector
from stepset.backends.kubernetes.watch.selectors import Collection, of_run
from stepset.backends.kubernetes.watch.unqueued import UnqueuedRuns
from stepset.errors import InfrastructureError, StepsetError
from stepset.unstructured import part, text
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.ownership import name_of, uid_of
from stepset.watch.cluster.router import Router
from stepset.watch.list_watch import Change, version_of

_log = logging.getLogger(__name__)

_READ_AGAIN = 1.0
"""The number of seconds before a failed read of a workload is retried."""
_READ_QUEUE = 1.0
"""The number of seconds between two reads of what Kueue knows about the runs. The readers send fewer requests."""

_WARNINGS = 1000
"""The maximum number of unreadable objects whose uids are stored. If the uid of an object is stored, the informer does
not log the object again."""

Key = tuple[str, str]
Collections = Callable[[str, Manifest], list[Collection]]


@dataclass(eq=False)
class FollowedRun:
    """One run that an informer follows.

    Attributes:
        collections: the keys of the run's collections. The first collection contains the workload, the second the pods.
        changed: an event that is set when the run, or the state of one of the run's watches, has changed.
        loop: the event loop in which the run is followed.
        pods: a mapping from the uid of a pod of the run to the last change of the pod. Contains the pods that have
            changed since the last call of `take_pods`.
        taken: the uids of the existing pods that `take_pods` has returned.
        reconnected: whether the informer has reconnected because the server was silent. The follower sets it to False.
        confirming: the task that reads the workload because a list did not contain the workload. None if no such task
            is running.
        unconfirmed: the reason why the task `confirming` could not read the workload.
    """

    informer: Informer
    workload: Manifest
    collections: Sequence[Key]
    objects: RunObjects
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    pods: dict[str, Change] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    reconnected: bool = False
    confirming: asyncio.Task[None] | None = None
    unconfirmed: StepsetError | None = None

    @property
    def name(self) -> str:
        """The run's name."""
        return str(self.workload["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The uid of the run's workload."""
        return str(self.workload["metadata"]["uid"])

    @property
    def complete(self) -> bool:
        """Whether the run's state is known: all collections were listed, and `confirming` is None."""
        return self.confirming is None and all(reflector.listed for reflector in self._reflectors)

    @property
    def error(self) -> StepsetError | None:
        """The reason why the run can no longer be followed."""
        error = next((each.error for each in self._reflectors if each.error is not None), self.unconfirmed)
        return None if error is None else self._namespaced.with_remedy(error, in_namespace=True)

    @property
    def access_notes(self) -> tuple[str, ...]:
        """Notes on optional collections that the account cannot read, and on unexpected errors of watches."""
        refusals = [reflector.refusal for reflector in self._reflectors if reflector.refusal is not None]
        notes = [access_note(each, self._namespaced.namespace, self._namespaced.grant) for each in refusals]
        notes += [reflector.problem for reflector in self._reflectors]
        return tuple(note for note in notes if note)

    def silent_for(self) -> float:
        """Returns the number of seconds since the server stopped answering; 0 if the server answers."""
        since = [self.informer.liveness.silent_since, *(reflector.silent_since for reflector in self._reflectors)]
        times = [each for each in since if each is not None]
        return asyncio.get_running_loop().time() - min(times) if times else 0.0

    def wake(self) -> None:
        """Sets `changed`. This method may be called from any thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.changed.set)

    def take_pods(self) -> list[LogPod]:
        """Returns the pods of the run that have changed since the last call.

        Returns no pod that claims the index of another pod. If such a pod was returned before its claim was known, all
        its changes are returned, because its log is already being read.
        """
        pods, self.pods = self.pods, {}
        own = {uid: each for uid, each in pods.items() if uid in self.taken or self.objects.owns(uid)}
        self.taken |= own.keys()
        self.taken -= {uid for uid, each in own.items() if each.verb == "DELETED"}
        return [_log_pod(each) for each in own.values()]

    @cached_property
    def _namespaced(self) -> NamespacedClient:
        return self.informer.namespaced.of_kind(resource_of(self.workload))

    @property
    def _reflectors(self) -> list[Reflector]:
        return [self.informer.reflectors[key] for key in self.collections]


class Informer:
    """Follows runs until its `async with` block ends.

    `collections` is the function `of_run` of the module `selectors`, or `of_namespace`, by which runs share watches.

    Attributes:
        router: the runs that exist or are followed.
        connections: limits the number of logs of these runs that are read at the same time.
    """

    def __init__(self, namespaced: NamespacedClient, collections: Collections = of_run) -> None:
        self.namespaced, self._collections, self.connections = namespaced, collections, LogConnections()
        self.reflectors: dict[Key, Reflector] = {}
        self.liveness = ServerLiveness(namespaced.client, self._last_received, self._probe, self._reconnect)
        self.router = Router()
        self._unreadable: set[str] = set()
        self._followed: dict[str, list[FollowedRun]] = {}
        self._turn = -1
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Informer:
        await self.namespaced.client.__aenter__()
        self._tasks.append(asyncio.create_task(self.liveness.run(), name="server liveness"))
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.namespaced.client.__aexit__(*exc)

    @asynccontextmanager
    async def follow(self, workload: Manifest) -> AsyncIterator[FollowedRun]:
        """Follows a run until the `async with` block ends. Only apiVersion, kind and metadata of `workload` are needed.

        Raises InfrastructureError if the server cannot be reached or denies access.
        """
        collections = self._collections(self.namespaced.namespace, workload)
        name, uid = str(workload["metadata"]["name"]), str(workload["metadata"]["uid"])
        self.router.keep(name, uid)
        objects = self.router.objects(name, uid)
        assert objects is not None
        followed = FollowedRun(self, workload, [each.key for each in collections], objects)
        self._followed.setdefault(name, []).append(followed)
        try:
            for collection in collections:
                self._start(collection)
            itself, pods = (self.reflectors[key] for key in followed.collections[:2])
            existing = {uid: pods.get(uid) for uid in self.router.existing(objects)}
            followed.pods.update({uid: Change("ADDED", pod) for uid, pod in existing.items() if pod is not None})
            if objects.workload is None and itself.listed and not await self._exists(followed):
                self._mark_deleted(followed)
            followed.changed.set()
            yield followed
        finally:
            if followed.confirming is not None:
                followed.confirming.cancel()
            self._leave(followed)

    def _start(self, collection: Collection) -> None:
        reflector = self.reflectors.get(key := collection.key)
        if reflector is None:
            self.reflectors[key] = reflector = Reflector(self.namespaced.client, collection, partial(self._see, key))
            if collection.path == QUEUE_WORKLOADS.path(self.namespaced.namespace):
                for reader in (QueuePositions(self.namespaced), UnqueuedRuns(self.namespaced)):
                    self._tasks.append(asyncio.create_task(self._read_queue(reader), name=type(reader).__name__))
        elif reflector.error is None:
            return
        else:
            reflector.reset()
        self._tasks.append(asyncio.create_task(reflector.run(), name=f"reflector {collection.path}"))

    async def _exists(self, followed: FollowedRun) -> bool:
        """Reads a run's workload, and returns whether the workload exists.

        This method is called if the watch has not reported the workload. The workload may be new or deleted.

        If the server cannot be reached or denies access, repeats the request for a minute. Then raises
        InfrastructureError.
        """
        clock, grace = asyncio.get_running_loop().time, RefusalGrace(allowed=True)
        while True:
            try:
                reply = await self.namespaced.client.get(followed.collections[0][0] + f"/{followed.name}")
                if reply.accepted or reply.status == NOT_FOUND:
                    return text(part(reply.body, "metadata"), "uid") == followed.uid
                raise RefusedError(reply)
            except InfrastructureError:
                if not grace.covers(clock()):
                    raise
            await asyncio.sleep(_READ_AGAIN)

    def _mark_deleted(self, followed: FollowedRun) -> None:
        if "spec" in followed.workload:
            # The caller has read the workload before the deletion, so the fields of the workload are known.
            followed.objects.see(Change("DELETED", followed.workload, observed=False))
            for pod in followed.objects.pods_seen:
                self._pass_pod(followed.objects, pod)
        else:
            followed.objects.not_found()

    def _leave(self, followed: FollowedRun) -> None:
        those = self._followed[followed.name]
        those.remove(followed)
        if not those:
            del self._followed[followed.name]
            self.router.forget(followed.name)

    def _see(self, key: Key, changes: Sequence[Change], listed: bool) -> None:
        """Applies the changes of one collection, and wakes the followers of the changed runs."""
        changed = set[str]()
        for change in changes:
            changed |= self._apply(change)
        names = list(self._followed) if listed or not changes else [name for name in changed if name in self._followed]
        for followed in (each for name in names for each in self._followed[name]):
            if listed and followed.collections[0] == key:
                self._confirm(followed)
            followed.changed.set()

    def _confirm(self, followed: FollowedRun) -> None:
        """If no watch and no list has reported the workload, starts a task that reads the workload.

        The workload may have been deleted after the watch had ended, or created after the list was requested.
        """
        if followed.objects.workload is None and not followed.objects.absence and followed.confirming is None:
            followed.confirming = asyncio.create_task(self._read_unseen(followed), name=f"read run {followed.name}")

    async def _read_unseen(self, followed: FollowedRun) -> None:
        try:
            if not await self._exists(followed) and followed.objects.workload is None:
                self._mark_deleted(followed)
        except StepsetError as error:
            followed.unconfirmed = error
        finally:
            followed.confirming = None
            followed.changed.set()

    def _apply(self, change: Change) -> Set[str]:
        """Applies one change, and returns the names of the changed runs. Ignores an object that cannot be read.

        Passes the changes of pods to their followers.
        """
        try:
            seen = self.router.see([change])
        except Exception as error:  # noqa: BLE001  # one object must not stop the runs of a namespace
            uid = uid_of(change.object)
            if uid not in self._unreadable:
                _log.warning("%s cannot be read and is ignored: %r", name_of(change.object), error)
            if len(self._unreadable) < _WARNINGS:
                self._unreadable.add(uid)
            return set()
        for run, pod in seen.pods:
            self._pass_pod(run, pod)
        return seen.runs

    def _pass_pod(self, run: RunObjects, change: Change) -> None:
        """Passes the change of a pod to the followers of the pod's run, and wakes these followers."""
        for followed in self._followed.get(run.name, ()):
            if followed.objects is run:
                followed.pods[uid_of(change.object)] = change
                followed.changed.set()

    async def _read_queue(self, reader: QueuePositions | UnqueuedRuns) -> None:
        """Passes the followed runs to `reader` repeatedly, and wakes the followers of the runs that have changed."""
        while True:
            for run in await reader.read({followed.objects for those in self._followed.values() for followed in those}):
                for followed in self._followed.get(run.name, ()):
                    followed.changed.set()
            await asyncio.sleep(_READ_QUEUE)

    def _last_received(self) -> float:
        return max((reflector.last_received for reflector in self.reflectors.values()), default=0.0)

    def _probe(self) -> Probe | None:
        """Returns a probe for the workload of a followed run. Each call selects the next run."""
        runs = [each for those in self._followed.values() for each in those]
        if not runs:
            return None
        self._turn = (self._turn + 1) % len(runs)
        followed = runs[self._turn]
        if not followed.complete:
            return None
        path, reflector = followed.collections[0][0], self.reflectors[followed.collections[0]]
        return Probe(f"{path}/{followed.name}", followed.uid, lambda: version_of(reflector.get(followed.uid)))

    def _reconnect(self) -> None:
        for reflector in self.reflectors.values():
            reflector.reconnect()
        for those in self._followed.values():
            for followed in those:
                followed.reconnected = True
                followed.changed.set()


def _log_pod(change: Change) -> LogPod:
    pod = log_pod(change.object, change.verb == "DELETED")
    # If no watch has reported the deletion, it is unknown whether the container was still running.
    return pod if change.observed else replace(pod, alive=False)
