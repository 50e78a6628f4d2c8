"""One list and watch of a namespace, however many triggers of one event loop wait for runs in it.

The asynchronous carrier of `stepset.watch.feed.Feed` and `stepset.watch.cluster.router.Router`. A trigger follows its
run with `following` and is woken when something about it has changed; the last that leaves takes the connection along.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from stepset_airflow.async_client import AsyncCluster
from stepset_airflow.connection import ClusterAccess

if TYPE_CHECKING:
    from stepset.backends.kubernetes.log_pods import LogPod
    from stepset.backends.kubernetes.watcher import Collection
    from stepset.errors import StepsetError
    from stepset.watch.cluster.change import Change
    from stepset.watch.cluster.objects import RunObjects

_GONE, _NOT_FOUND, _FORBIDDEN = 410, 404, 403

_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClusterAccess, SharedWatch]] = WeakKeyDictionary()


@dataclass
class Following:
    """One run, as its trigger hears of it.

    Args:
        watch: what all share.
        run: the run's name.
        uid: of its workload.
        top: path of the collection its workload is in.
        collections: paths of what must have been listed before anything can be said.

    Attributes:
        news: something has changed.
        failed: why a collection cannot be followed any more.
    """

    watch: SharedWatch
    run: str
    uid: str
    top: str
    collections: frozenset[str]
    news: asyncio.Event = field(default_factory=asyncio.Event)
    failed: StepsetError | None = None

    @property
    def complete(self) -> bool:
        """Whether everything has been listed once."""
        return self.watch.listed >= self.collections

    @property
    def cluster(self) -> AsyncCluster:
        """The connection that all share."""
        return self.watch.cluster

    @property
    def objects(self) -> RunObjects:
        """The run's objects as last seen."""
        return self.watch.objects(self.run)

    @property
    def unseen(self) -> tuple[str, ...]:
        """What may not be seen and is done without, each in one line."""
        return tuple(note for path, note in self.watch.unseen.items() if path in self.collections and note)

    @property
    def pods(self) -> Sequence[LogPod]:
        """Its pods, as they matter to whoever reads their logs."""
        return list(self.watch.pods.get(self.run, {}).values())


@asynccontextmanager
async def following(access: ClusterAccess, workload: Mapping[str, Any]) -> AsyncIterator[Following]:
    """A run, followed by way of what this event loop's triggers share.

    Args:
        access: which cluster; its namespace is the run's.
        workload: the run's object on top: apiVersion, kind, metadata with name, uid and labels.

    Raises:
        BadInputError: there is no such connection, or its configuration cannot be used.
        InfrastructureError: the server cannot be asked for the run.
    """
    shared = _watches.setdefault(asyncio.get_running_loop(), {})
    watch = shared.get(access)
    if watch is None:
        watch = shared[access] = SharedWatch(access)
    watch.users += 1
    followed: Following | None = None
    try:
        followed = await watch.add(workload)
        yield followed
    finally:
        if followed is not None:
            watch.remove(followed)
        watch.users -= 1
        if not watch.users:
            if shared.get(access) is watch:
                del shared[access]
            await watch.close()


class SharedWatch:
    """The runs of one namespace.

    Args:
        access: which cluster; its namespace is the one.

    Attributes:
        users: how many follow a run, or are about to.
        listed: paths of the collections whose objects are all known.
        unseen: path of a collection that is done without -> what is to be said of that.
        pods: run -> uid -> pod.
    """

    def __init__(self, access: ClusterAccess) -> None:
        from stepset.watch.cluster.router import Router

        self.cluster = AsyncCluster(access)
        self.users = 0
        self.listed: set[str] = set()
        self.unseen: dict[str, str] = {}
        self.pods: dict[str, dict[str, LogPod]] = {}
        self._router = Router()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._silent_since: dict[str, float] = {}
        self._followed: dict[str, list[Following]] = {}

    async def add(self, workload: Mapping[str, Any]) -> Following:
        """Begins to follow a run."""
        await self.cluster.open()
        run, uid = str(workload["metadata"]["name"]), str(workload["metadata"]["uid"])
        collections = self._collections(workload)
        followed = Following(self, run, uid, collections[0].path, frozenset(each.path for each in collections))
        self._followed.setdefault(run, []).append(followed)
        for collection in collections:
            if collection.path not in self._tasks:
                self._tasks[collection.path] = asyncio.create_task(self._follow(collection))
        if not self._router.keep(run, uid) and followed.top in self.listed:
            # It may be so new that the watch has not told of it, or gone: then it never will.
            there = await self.cluster.request("GET", f"{followed.top}/{run}")
            if not (there.accepted and there.body["metadata"]["uid"] == uid):
                self.objects(run).not_found()
        followed.news.set()
        return followed

    def remove(self, followed: Following) -> None:
        """Ends it."""
        those = self._followed[followed.run]
        those.remove(followed)
        if not those:
            del self._followed[followed.run]
            self._router.forget(followed.run)

    async def close(self) -> None:
        """Ends everything."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.cluster.close()

    def objects(self, run: str) -> RunObjects:
        """What is known of a run that is followed."""
        found = self._router.objects(run)
        assert found is not None
        return found

    def silent_for(self) -> float:
        """Seconds for which the server has not answered; 0 while it does."""
        now = asyncio.get_running_loop().time()
        return max((now - since for since in self._silent_since.values()), default=0.0)

    def _collections(self, workload: Mapping[str, Any]) -> list[Collection]:
        """What there is to be followed for a run: the same for all of its kind, so that they share it."""
        from stepset.backends.kubernetes.resources import resource_of
        from stepset.backends.kubernetes.scope import of_all_runs
        from stepset.backends.kubernetes.site import EVENTS, QUEUE_WORKLOADS, Site
        from stepset.backends.kubernetes.watcher import Collection
        from stepset.targets.gang import QUEUE_LABEL

        site = Site(self.cluster.connection, self.cluster.namespace)
        found = of_all_runs(site, resource_of(workload))
        found.append(Collection(site.all(EVENTS), {"fieldSelector": "type=Warning"}, needed=False))
        if QUEUE_LABEL in (workload["metadata"].get("labels") or {}):
            found.append(Collection(site.all(QUEUE_WORKLOADS), needed=False))
        return found

    async def _follow(self, collection: Collection) -> None:
        from stepset.backends.kubernetes.client import RefusedError, UnreachableError
        from stepset.backends.kubernetes.refusals import Forbearance, unseen
        from stepset.errors import StepsetError
        from stepset.watch.feed import Feed

        feed, loop, forbearance = Feed(collection.wanted), asyncio.get_running_loop(), Forbearance()
        while True:
            try:
                answered = await self._ask(collection, feed)
            except UnreachableError:
                answered = False
                forbearance.unreachable()
            except RefusedError as refused:
                status = refused.reply.status
                if status == _GONE:
                    feed.expired()
                elif not forbearance.bears(loop.time()):
                    if status in (_NOT_FOUND, _FORBIDDEN) and not collection.needed:
                        self.unseen[collection.path] = unseen(refused.reply, self.cluster.namespace)
                        self._known(collection.path)
                    else:
                        self._give_up(collection.path, refused)
                    return
                answered = False
            except StepsetError as error:
                self._give_up(collection.path, error)
                return
            if answered:
                forbearance.granted()
                self._silent_since.pop(collection.path, None)
            else:
                self._silent_since.setdefault(collection.path, loop.time())
                # Many triggerers that lost one server must not all come back at the same moment.
                await asyncio.sleep(feed.failed() * random.uniform(0.7, 1.3))

    async def _ask(self, collection: Collection, feed: Any) -> bool:
        """One request; whether something was answered."""
        from stepset.backends.kubernetes.client import RefusedError
        from stepset.backends.kubernetes.watcher import QUIET

        ask = feed.ask()
        query = {**collection.selectors, **ask.query}
        if not ask.watch:
            reply = await self.cluster.request("GET", collection.path, query=query)
            if not reply.accepted:
                raise RefusedError(reply)
            self._see(feed.listed(reply.body))
            if feed.listed_once:
                self._known(collection.path)
            return True
        answered = False
        async with self.cluster.stream(collection.path, query, QUIET) as chunks:
            async for chunk in chunks:
                answered = True
                self._silent_since.pop(collection.path, None)
                self._see(feed.data(chunk))
        return answered

    def _see(self, changes: Sequence[Change]) -> None:
        changed = self._router.see(changes) | {run for each in changes if (run := self._see_pod(each))}
        for run in changed:
            for followed in self._followed.get(run, ()):
                followed.news.set()

    def _see_pod(self, change: Change) -> str:
        """The run whose pod it is, if it is one."""
        from stepset.backends.kubernetes.log_pods import log_pod
        from stepset.targets.identity import RUN

        if change.object.get("kind") != "Pod":
            return ""
        run = str((change.object["metadata"].get("labels") or {}).get(RUN, ""))
        pod = log_pod(change.object, change.verb == "DELETED")
        if pod.gone and run not in self._followed:
            self.pods.get(run, {}).pop(pod.uid, None)
            if not self.pods.get(run):
                self.pods.pop(run, None)
        else:
            self.pods.setdefault(run, {})[pod.uid] = pod
        return run

    def _known(self, path: str) -> None:
        if path not in self.listed:
            self.listed.add(path)
            for followed in self._everybody():
                # What the list does not have is gone: it was made before anybody asked for one.
                if followed.top == path and followed.objects.workload is None:
                    followed.objects.not_found()
                followed.news.set()

    def _give_up(self, path: str, error: StepsetError) -> None:
        # The next trigger that comes begins anew.
        self._tasks.pop(path, None)
        for followed in self._everybody():
            if path in followed.collections:
                followed.failed = error
                followed.news.set()

    def _everybody(self) -> list[Following]:
        return [each for those in self._followed.values() for each in those]
