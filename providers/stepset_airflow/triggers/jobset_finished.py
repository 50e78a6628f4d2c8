"""A trigger that starts a DAG when a run finishes: `AssetWatcher(trigger=JobSetFinishedEventTrigger(...))`.

The triggerer runs the trigger as long as an asset uses the trigger. All triggers with the same connection and namespace
share one stream. The stream reports runs that finish while the stream is open. The stream does not report runs that
finished earlier.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import structlog
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from stepset_airflow.hooks.cluster import ClusterAccess, client_of
from stepset_airflow.transferable import masked, transferable
from stepset_airflow.triggerer.imports import import_in_thread

if TYPE_CHECKING:
    from stepset.backends.kubernetes.api.client import Client
    from stepset.watch.list_watch import Change

log = structlog.get_logger(logger_name=__name__)

_MAX_DELAY = 20.0
"""Maximum number of seconds between an error and the next attempt to watch the namespace."""


class JobSetFinishedEventTrigger(BaseEventTrigger):
    """Reports finished runs. An event contains `run`, `job`, `namespace`, `uid`, `phase` and `result`.

    Args:
        job: the name of the job whose runs are reported. By default, the runs of all jobs are reported.
        phases: final phases, such as Succeeded and Failed. Only runs with one of these final phases are reported.
        kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file: the cluster and the namespace of the
            runs. These parameters have the same meaning as in DistributedTrainOperator.
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
        """Returns the class path and the fields from which Airflow creates the trigger.

        The fields contain no credentials.
        """
        fields = {"job": self.job, "phases": list(self.phases), **self._access.to_dict()}
        return "stepset_airflow.triggers.jobset_finished.JobSetFinishedEventTrigger", fields

    def shared_stream_key(self) -> Hashable:
        """Returns a key that is equal for all triggers with the same connection and namespace."""
        return ("stepset", *self._access.to_dict().values())

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yields each run of a namespace when the run finishes. The stream never ends.

        `kwargs` are the fields of one of the triggers that share the stream.
        """
        await import_in_thread()
        access = cls(**kwargs)._access
        async with client_of(access) as client, aclosing(_ended_runs(client, access.namespace)) as runs:
            async for ended in runs:
                yield ended

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncGenerator[TriggerEvent, None]:
        """Yields an event for each run in the stream, if this trigger selects the run."""
        async for ended in shared_stream:
            if ended["phase"] in self.phases and self.job in (None, ended["job"]):
                yield TriggerEvent(ended)  # type: ignore[no-untyped-call]  # Airflow's

    async def run(self) -> AsyncGenerator[TriggerEvent, None]:
        """Yields the events of a separate stream. Airflow calls this method if the triggerer does not share streams."""
        async with (
            aclosing(self.open_shared_stream(self.serialize()[1])) as stream,
            aclosing(self.filter_shared_stream(stream)) as events,
        ):
            async for event in events:
                yield event


async def _ended_runs(client: Client, namespace: str | None) -> AsyncGenerator[dict[str, Any], None]:
    from stepset.errors import StepsetError

    finished, reported, failures = FinishedRuns(), "", 0
    while True:
        try:
            async with aclosing(_watch_ended_runs(client, namespace, finished)) as runs:
                async for ended in runs:
                    failures, reported = 0, ""
                    if ended is not None:
                        yield ended
        except StepsetError as error:
            # The error is only logged. If this method raised the error, Airflow would restart the trigger every second.
            if reported != str(error):
                reported = str(error)
                log.warning(f"completed runs are not reported until this is fixed: {reported}")
        failures += 1
        await asyncio.sleep(min(_MAX_DELAY, 0.25 * 2**failures) * random.uniform(0.7, 1.3))


async def _watch_ended_runs(
    client: Client, namespace: str | None, finished: FinishedRuns
) -> AsyncGenerator[dict[str, Any] | None, None]:
    """Yields each run when the run finishes.

    After the runs have been listed, the function also yields None for each change. If an error ends the watch, the
    function raises this error.
    """
    from stepset.backends.kubernetes.api.namespaced import NamespacedClient
    from stepset.backends.kubernetes.api.permissions import Grant
    from stepset.backends.kubernetes.api.resources import JOBSETS
    from stepset.backends.kubernetes.cluster_runs import ClusterRuns
    from stepset.backends.kubernetes.watch.reflector import Reflector
    from stepset.backends.kubernetes.watch.selectors import Collection
    from stepset.errors import StepsetError
    from stepset.targets.metadata import RUN

    api, changed = (
        NamespacedClient(client, namespace or (await client.open()).namespace, Grant("airflow")),
        asyncio.Event(),
    )

    def on_changes(changes: Sequence[Change], listed: bool) -> None:
        finished.update(changes)
        if listed:
            finished.keep(reflector.objects)
        changed.set()

    reflector = Reflector(client, Collection(api.all(JOBSETS), {"labelSelector": RUN}), on_changes)
    runs, following = ClusterRuns(api, target="jobset"), asyncio.create_task(reflector.run())
    try:
        while reflector.error is None:
            await changed.wait()
            changed.clear()
            if reflector.error is not None:
                break
            if reflector.listed and not finished.started:
                finished.start()
                log.info(f"runs that end in namespace {api.namespace} are reported from now on")
            if reflector.listed:
                yield None
            for uid, workload in list(finished.unreported.items()):
                try:
                    status = await runs.read(workload)
                except StepsetError:
                    raise
                except Exception:  # if one run cannot be read, the other runs must still be reported
                    log.warning(f"the end of run {workload['metadata']['name']} cannot be read", exc_info=True)
                    del finished.unreported[uid]
                    continue
                del finished.unreported[uid]
                yield {
                    "run": status.name,
                    "job": status.job,
                    "namespace": api.namespace,
                    "uid": uid,
                    "phase": status.phase.value,
                    "result": transferable(masked(status.result)),
                }
        raise api.with_remedy(reflector.error)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


class FinishedRuns:
    """The finished runs of a namespace.

    Attributes:
        started: whether `start` has been called.
        known: the uids of the finished runs that still exist.
        unreported: a mapping from uids to workloads, with the finished runs that have not been reported.
    """

    def __init__(self) -> None:
        self.started = False
        self.unreported: dict[str, Mapping[str, Any]] = {}
        self.known: set[str] = set()

    def start(self) -> None:
        """Removes all runs from `unreported`. Only runs that finish after this call are reported."""
        self.started = True
        self.unreported.clear()

    def update(self, changes: Iterable[Change]) -> None:
        from stepset.watch.cluster.ownership import uid_of

        for change in changes:
            uid = uid_of(change.object)
            if change.verb == "DELETED":
                self.known.discard(uid)
            elif uid not in self.known and _has_ended(change.object):
                self.known.add(uid)
                self.unreported[uid] = change.object

    def keep(self, existing: Iterable[Mapping[str, Any]]) -> None:
        """Removes the runs that are not in `existing`.

        This method is necessary because a watch does not report runs that were deleted before the watch started.
        """
        from stepset.watch.cluster.ownership import uid_of

        self.known.intersection_update(map(uid_of, existing))


def _has_ended(workload: Mapping[str, Any]) -> bool:
    """Returns whether a run has finished.

    A run has finished if its JobSet has the condition Completed or Failed, or contains a verdict. Returns False for the
    JobSet of a TrainJob.
    """
    from stepset.watch.cluster.ownership import is_run
    from stepset.watch.cluster.workload import read_workload

    read = read_workload(workload) if is_run(workload) else None
    return read is not None and (bool(read.ended) or read.verdict is not None)
