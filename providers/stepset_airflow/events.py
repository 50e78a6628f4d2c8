"""`AssetWatcher(trigger=JobSetFinishedEventTrigger(...))`: a run that has ended, whoever started it, schedules a DAG.

Airflow's triggerer runs it for as long as the asset is watched. Triggers of one connection and namespace share one
stream, which tells of runs that end while it is open: those that had ended before are no news.
"""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import structlog
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from stepset_airflow.connection import ClusterAccess
from stepset_airflow.triggers import HEAVY

if TYPE_CHECKING:
    from stepset.watch.cluster.change import Change
    from stepset_airflow.async_client import AsyncCluster

log = structlog.get_logger(logger_name=__name__)

_ACCESS = ("kubernetes_conn_id", "namespace", "in_cluster", "cluster_context", "config_file")
_GONE = 410


class JobSetFinishedEventTrigger(BaseEventTrigger):
    """Tells of runs that have ended; the event has `run`, `job`, `namespace`, `uid`, `phase` and `result`.

    Args:
        job: only runs of this job; default: all.
        phases: only runs that ended so: Succeeded, Failed.
        kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file: as the operator has them.
    """

    def __init__(
        self,
        job: str | None = None,
        phases: Sequence[str] = ("Succeeded",),
        kubernetes_conn_id: str | None = "kubernetes_default",
        namespace: str | None = None,
        in_cluster: bool | None = None,
        cluster_context: str | None = None,
        config_file: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        self.job, self.phases = job, tuple(phases)
        self._access = ClusterAccess(kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another process makes the same trigger from; no credentials."""
        fields = {"job": self.job, "phases": list(self.phases), **self._access.to_dict()}
        return "stepset_airflow.events.JobSetFinishedEventTrigger", fields

    def shared_stream_key(self) -> Hashable:
        """The same for all that watch one namespace."""
        return ("stepset", *self._access.to_dict().values())

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Runs of a namespace as they end, for ever.

        Args:
            kwargs: of one of the triggers that share it.
        """
        for module in HEAVY:
            await asyncio.to_thread(importlib.import_module, module)
        from stepset_airflow.async_client import AsyncCluster

        cluster = AsyncCluster(ClusterAccess(**{name: kwargs.get(name) for name in _ACCESS}))
        try:
            async with aclosing(_ended_runs(cluster)) as runs:
                async for ended in runs:
                    yield ended
        finally:
            await cluster.close()

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncGenerator[TriggerEvent, None]:
        """This trigger's events of those that are shared."""
        async for ended in shared_stream:
            if ended["phase"] in self.phases and self.job in (None, ended["job"]):
                yield TriggerEvent(ended)  # type: ignore[no-untyped-call]  # Airflow's

    async def run(self) -> AsyncGenerator[TriggerEvent, None]:
        """The same with a stream of its own, for a triggerer that shares none."""
        async with (
            aclosing(self.open_shared_stream(self.serialize()[1])) as stream,
            aclosing(self.filter_shared_stream(stream)) as events,
        ):
            async for event in events:
                yield event


async def _ended_runs(cluster: AsyncCluster) -> AsyncGenerator[dict[str, Any], None]:
    from stepset.backends.kubernetes.client import RefusedError
    from stepset.backends.kubernetes.site import JOBSETS
    from stepset.backends.kubernetes.watcher import QUIET
    from stepset.errors import StepsetError
    from stepset.targets.identity import RUN
    from stepset.watch.feed import Feed

    feed, known, untold = Feed(), set[str](), dict[str, Mapping[str, Any]]()
    first, said = True, ""
    while True:
        try:
            await cluster.open()
            async for ended in _told(cluster, untold):
                yield ended
            path, ask = JOBSETS.path(cluster.namespace), feed.ask()
            query = {"labelSelector": RUN, **ask.query}
            if not ask.watch:
                reply = await cluster.request("GET", path, query=query)
                if not reply.accepted:
                    raise RefusedError(reply)
                _take(feed.listed(reply.body), known, untold)
                if first and feed.listed_once:
                    untold.clear()
                    first = False
                    log.info(f"runs that end in namespace {cluster.namespace} are told from now on")
                said = ""
                continue
            async with cluster.stream(path, query, QUIET) as chunks:
                async for chunk in chunks:
                    _take(feed.data(chunk), known, untold)
                    async for ended in _told(cluster, untold):
                        yield ended
        except StepsetError as error:
            if isinstance(error, RefusedError) and error.reply.status == _GONE:
                feed.expired()
                continue
            # No task waits that could fail, and Airflow would start a trigger that ends anew each second.
            if said != str(error):
                said = str(error)
                log.warning(f"nobody is told of runs that end, until this is mended: {said}")
            await asyncio.sleep(feed.failed() * random.uniform(0.7, 1.3))


def _take(changes: Iterable[Change], known: set[str], untold: dict[str, Mapping[str, Any]]) -> None:
    """Notes runs that have ended: in `known` for as long as they are there, in `untold` until they are told."""
    for change in changes:
        uid = _uid(change.object)
        if change.verb == "DELETED":
            known.discard(uid)
        elif uid not in known and _over(change.object):
            known.add(uid)
            untold[uid] = change.object


async def _told(cluster: AsyncCluster, untold: dict[str, Mapping[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    """What there is to be said of runs that have ended; what cannot be read now stays."""
    for uid, workload in list(untold.items()):
        ended = await asyncio.to_thread(_read, cluster, workload)
        del untold[uid]
        yield ended


def _read(cluster: AsyncCluster, workload: Mapping[str, Any]) -> dict[str, Any]:
    """A run that has ended, with what its pods say of it; in a thread."""
    from stepset.backends.kubernetes.backend import KubernetesBackend

    status = KubernetesBackend(cluster.connection, namespace=cluster.namespace, target="jobset").read(workload)
    return {
        "run": status.name,
        "job": status.job,
        "namespace": cluster.namespace,
        "uid": _uid(workload),
        "phase": status.phase.value,
        "result": status.result,
    }


def _uid(workload: Mapping[str, Any]) -> str:
    return str(workload["metadata"]["uid"])


def _over(workload: Mapping[str, Any]) -> bool:
    """Whether a run has ended by its JobSet's own word or its keeper's; a TrainJob's JobSet is another's."""
    from stepset.watch.cluster.workload import read_workload

    if any(owner.get("controller") for owner in workload["metadata"].get("ownerReferences") or ()):
        return False
    read = read_workload(workload)
    return read is not None and (bool(read.ended) or read.verdict is not None)
