"""DistributedTrainTrigger, which follows the run of a deferred task and writes the task's log.

Airflow creates a trigger from serialized fields. Airflow may run the same trigger in two triggerers at the same time,
and may restart the trigger in another triggerer. Therefore the trigger performs no action that must happen exactly
once. A worker performs such actions in `execute_complete`.

A trigger changes the cluster in three cases. If a user ends the task, the trigger ends the run. If the job requests the
deletion of pods on lost nodes, the trigger deletes these pods. If the ttl of a TrainJob has expired, the trigger
deletes the TrainJob.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import structlog
from airflow.triggers.base import BaseTrigger, TriggerEvent

from stepset_airflow.airflow_internals import ON_KILL_TIMEOUT, USER_ACTION_CANCEL_MESSAGE
from stepset_airflow.hooks.cluster import ClusterAccess, client_of
from stepset_airflow.logs.task_log import TaskLog, find_callbacks
from stepset_airflow.task_state import is_ended, state_of
from stepset_airflow.transferable import masked_status, transferable
from stepset_airflow.triggerer.cancellation import spawn, wait_uncancelled
from stepset_airflow.triggerer.imports import import_in_thread
from stepset_airflow.triggerer.log_backpressure import wait_until_read
from stepset_airflow.triggerer.log_lease import delete_lease, lease_log, wait_before_event

log = structlog.get_logger(logger_name=__name__)

_ON_KILL_TIMEOUT = ON_KILL_TIMEOUT - 5.0
"""Maximum seconds that `on_kill` waits until it has ended the run."""
_RETRY_DELAYS = (1.0, 3.0)
"""If a query for a task's state fails, the trigger repeats the query after these numbers of seconds."""
_FOLLOWED_FOR = 60.0
"""After this number of seconds without an unexpected error, the counter of errors is reset."""
_READ_TIMEOUT = 5.0
"""Maximum seconds that `on_kill` waits until the main process has read the last log lines."""


@dataclass(eq=False, repr=False)
class DistributedTrainTrigger(BaseTrigger):
    """Waits until a run has finished.

    Args:
        access: the fields of a ClusterAccess. The field `namespace` is the namespace of the run.
        workload: the result of `workload_reference` for the run.
        sources: the sources whose lines are written to the log. None means all sources.
        ranks: the ranks whose lines are written to the log. None means all ranks.
        callbacks: dotted paths of functions that are called with each status. Each call runs in a thread.
        admission_timeout, startup_timeout: time limits in seconds, as for the operator. None means no limit.
        quiet_after: if the ranks print no line for this number of seconds, a note is written to the log. If
            `quiet_after` is None, no note is written.
        poll_interval: the number of seconds between two checks of the time limits.
        deadline: the time at which the task times out, in seconds since the epoch. None means no limit.
        on_kill_action: what happens to the run if the task is killed: `delete`, `suspend` or `keep`.
        position: the `log_lease.Position` up to which the worker has written the task's log.
        page: the fields of a TaskKey, which identifies the page of the run. If `page` is None, no page is written.
    """

    access: Mapping[str, Any]
    workload: Mapping[str, Any]
    sources: Sequence[str] | None = None
    ranks: Sequence[int] | None = None
    callbacks: str | Sequence[str] | None = None
    admission_timeout: float | None = None
    startup_timeout: float | None = None
    quiet_after: float | None = None
    poll_interval: float = 10
    deadline: float | None = None
    on_kill_action: str = "delete"
    position: Mapping[str, Any] | None = None
    page: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        self._ending: asyncio.Task[None] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Returns the class path and the fields from which Airflow creates the trigger.

        The fields contain no credentials.
        """
        names = signature(type(self)).parameters
        return f"{type(self).__module__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follows the run until the run has finished, and yields one event.

        The event contains either the result of `_follow` or an error.
        """
        started = asyncio.get_running_loop().time()
        try:
            await import_in_thread()
            payload = await self._result()
            await wait_before_event(self, started)
        except asyncio.CancelledError as error:
            if error.args == (USER_ACTION_CANCEL_MESSAGE,):
                self._start_ending()  # Airflow does not always call on_kill
            raise
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow's
        await delete_lease(self)
        if payload.get("status", {}).get("expires") is not None:
            spawn(self._delete_when_expired(payload["status"]))

    async def on_kill(self) -> None:
        """Ends the run if a user has ended the task.

        Airflow sometimes calls this method although the task is still deferred. For example, Airflow may temporarily
        move the trigger to another triggerer (apache/airflow#73454). Therefore the method first queries the state of
        the task. If the task continues, or if the state is unknown, the run continues. If a user has cleared the task,
        the run also continues, because the next execution of the task ends the earlier run.
        """
        await wait_uncancelled(self._start_ending(), _ON_KILL_TIMEOUT)

    def _start_ending(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = spawn(self._end_run_if_task_ended())
        return self._ending

    async def _end_run_if_task_ended(self) -> None:
        """Ends the run if a user has ended the task."""
        state = await self._task_state()
        name = self.workload["metadata"]["name"]
        if not is_ended(state):
            log.info(f"run {name} continues: its task is {state or 'cleared, or in an unknown state'}")
        elif self.on_kill_action == "keep":
            log.warning(f"run {name} continues: on_kill_action is keep")
        else:
            await self._end_run()
        await wait_until_read(_READ_TIMEOUT)

    async def _result(self) -> dict[str, Any]:
        """Returns the result of `_follow`, or a payload with an error.

        After an unexpected error, the method calls `_follow` again. After several errors, the method returns a
        payload with the last error.
        """
        from stepset.errors import StepsetError
        from stepset.watch.retries import Retries

        retries, clock = Retries(), asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                return await self._follow()
            except StepsetError as error:
                return {"error": str(error)}
            except Exception as error:  # a bug in this code should not end the task while the run continues
                if clock() - began > _FOLLOWED_FOR:
                    retries.succeeded()
                pause, problem = retries.failed(), f"following the run failed unexpectedly: {repr(error)[:200]}"
                if retries.exhausted:
                    return {"error": f"{problem}; the run continues"}
                log.warning(f"{problem}; trying again", exc_info=True)
            await asyncio.sleep(pause)

    async def _follow(self) -> dict[str, Any]:
        """Follows the run until it has finished, and returns the payload of the event.

        The field `late` of the payload states whether execution_timeout has expired. If the run could not start and the
        trigger stopped waiting, the field `gave_up` is True.
        """
        from stepset.backends.kubernetes.follow import FollowOptions, RunFollower
        from stepset.watch.cluster.follow_policy import Timeouts
        from stepset.watch.cluster.verdict import verdict_text
        from stepset_airflow.page.async_writer import AsyncPageWriter
        from stepset_airflow.triggerer.shared_informer import shared_informer
        from stepset_airflow.triggerer.task_observer import TaskObserver

        ranks = None if self.ranks is None else frozenset(self.ranks)
        sources = None if self.sources is None else frozenset(self.sources)
        async with (
            lease_log(self, self.position or {}) as lease,
            shared_informer(ClusterAccess(**self.access), self.workload["target"]) as shared,
        ):
            before = lease.before
            task_log = TaskLog(log, ranks, reported=before.get("reported"), written=lease.written)
            page = AsyncPageWriter(self.page, self._extra_fields())
            observer = TaskObserver(
                task_log, page, lease, sources, find_callbacks(self.callbacks), lambda: follower.logs.positions
            )
            options = FollowOptions(
                sources,
                Timeouts(self.admission_timeout, self.startup_timeout, quiet=self.quiet_after),
                writes_verdict=False,
                progress=task_log.progress,
                positions=before.get("printed") or {},
                poll=self.poll_interval,
            )
            follower = RunFollower(shared.informer.namespaced, self.workload, observer, options, shared.informer)
            renewal = asyncio.create_task(lease.renew(lambda: observer.position))
            try:
                await page.open()
                status = await follower.follow(None if self.deadline is None else self.deadline - time.time())
                renewal.cancel()
                await page.finish()
            finally:
                renewal.cancel()
                await page.close()
            payload = {
                "status": json.loads(verdict_text(masked_status(status))),
                "late": not status.phase.final,
                "gave_up": follower.gave_up,
                "position": observer.position,
            }
            return transferable(payload)  # type: ignore[no-any-return]  # a mapping remains one

    def _extra_fields(self) -> dict[str, Any]:
        """Returns additional fields for the document of the page, which are not part of the run's status."""
        fields = {"namespace": self.access["namespace"], "target": self.workload["target"], "followed": True}
        return {**fields, "try_number": (self.page or {}).get("try_number")}

    async def _task_state(self) -> str | None:
        """Returns the result of `state_of` for the task. Retries after errors. Returns None if all queries failed."""
        from asgiref.sync import sync_to_async

        if self.task_instance is None:
            return None
        for pause in (*_RETRY_DELAYS, None):
            try:
                return await sync_to_async(state_of)(self.task_instance)
            except Exception as error:  # noqa: BLE001  # the run continues while the state is unknown
                log.warning(f"the task's state cannot be queried: {error}")
            if pause is not None:
                await asyncio.sleep(pause)
        return None

    async def _delete_when_expired(self, final: Mapping[str, Any]) -> None:
        """Waits until the ttl of a TrainJob has expired, then deletes the TrainJob.

        If the triggerer stops earlier, the TrainJob is not deleted.
        """
        from stepset.backends.kubernetes.api.namespaced import NamespacedClient
        from stepset.backends.kubernetes.api.permissions import Grant
        from stepset.backends.kubernetes.expiry import delete_when_expired
        from stepset.run_status import RunStatus

        async with client_of(ClusterAccess(**self.access)) as client:
            namespaced = NamespacedClient(client, self.access["namespace"], Grant("airflow"))
            await delete_when_expired(namespaced, self.workload, RunStatus.from_dict(dict(final)))

    async def _end_run(self) -> None:
        from stepset.backends.kubernetes.api.namespaced import NamespacedClient
        from stepset.backends.kubernetes.api.permissions import Grant
        from stepset.backends.kubernetes.cluster_runs import ClusterRuns
        from stepset.backends.kubernetes.stop import delete, suspend

        metadata = self.workload["metadata"]
        async with client_of(ClusterAccess(**self.access)) as client:
            runs = ClusterRuns(
                NamespacedClient(client, self.access["namespace"], Grant("airflow")), target=self.workload["target"]
            )
            workload = await runs.workload(metadata["name"], metadata["uid"])
            if workload is not None and not (await runs.read(workload)).phase.final:
                await runs.end(workload, suspend if self.on_kill_action == "suspend" else delete)
                log.info(f"run {metadata['name']} was ended ({self.on_kill_action}): a user has ended its task")
