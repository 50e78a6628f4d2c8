"""Runs the job of a task on a cluster.

The operator first calls `ClusterRun.begin`, which creates or finds the run. Then the worker follows the run. If the
task is deferred, a trigger follows the run instead of the worker. Finally, the operator calls `ClusterRun.finish`,
which handles the end of the run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import conf
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout

from stepset_airflow.hooks.cluster import ClusterAccess, connect
from stepset_airflow.identity import labels_of
from stepset_airflow.links.training import LinkFields
from stepset_airflow.logs.log_sources import log_sources
from stepset_airflow.logs.task_log import Listeners
from stepset_airflow.page.page_xcom import TaskKey
from stepset_airflow.run.exit_policy import outcome_of, should_delete
from stepset_airflow.run.orphan import NOT_IN_A_POD, orphan_stop
from stepset_airflow.run.pod_mutation import mutate_pod
from stepset_airflow.run.reattach import AttachedRun, Reattacher
from stepset_airflow.run.run_record import RETRY, SUCCEEDED, RunRecord
from stepset_airflow.run.task_result import task_result
from stepset_airflow.run.termination import Termination, timeout_reason
from stepset_airflow.run.training_task import TrainingTask
from stepset_airflow.run.trigger_event import reported_status
from stepset_airflow.transferable import masked_result, transferable
from stepset_airflow.triggers.workload_reference import workload_reference

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.backends.base import RunRequest
    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset.run_status import RunStatus
    from stepset.sources import Sources
    from stepset.spec import TrainingJob
    from stepset_airflow.page.writer import PageWriter

_POLL_INTERVAL = 0.2
"""Number of seconds between two checks that detect whether the task was killed."""


class ClusterRun:
    """The run of one task instance. Airflow must have rendered the fields of `task`."""

    def __init__(self, task: TrainingTask, context: Context) -> None:
        self._task, self._context = task, context
        self._backends: dict[str, KubernetesBackend] = {}
        self._page: PageWriter | None = None
        self.access = ClusterAccess.of(task)

    # --- start

    def begin(self, killed: Callable[[], bool]) -> AttachedRun:
        """Creates the run, or finds the run that an earlier execution of the task created.

        Raises AirflowException if the task was killed before the run was created. Also raises the errors of
        `Reattacher.reattach`.
        """
        if killed() and self.reattacher.stored_record() is None:
            raise AirflowException("no run was created, because its task was killed")
        found = self.reattacher.reattach()
        if found.workload is not None:
            self.page(found.record).on_status(self._initial_status(found))
        return found

    def page(self, record: RunRecord, *, resumed: bool = False) -> PageWriter:
        """Returns the writer of the run's page. `resumed` states whether a trigger has already written the page."""
        from stepset_airflow.page.writer import open_page
        from stepset_airflow.run.parameters import parameters_of

        if self._page is None:
            task = self._task
            extra_fields: dict[str, Any] = {
                "namespace": record.namespace,
                "target": task.target or "jobset",
                "followed": task.wait_for_completion,
                "parameters": parameters_of(task),
            }
            task.link_fields = LinkFields(record.namespace, record.name, extra_fields["target"])
            self._page = open_page(task, self._context["ti"], extra_fields, resumed=resumed)
        return self._page

    def close(self, *, write: bool = True) -> None:
        """Stops the thread that writes the page. If `write` is True, pending changes are written first.

        Call this method before the thread of the task queries Airflow, because only one thread at a time may send
        requests to Airflow.
        """
        if self._page is not None:
            self._page.close(write=write)

    def _initial_status(self, attached: AttachedRun) -> RunStatus:
        """Returns the status of the run before its pods have been read."""
        from stepset.run_status import RunStatus

        return RunStatus(
            attached.record.name, self._job[0].name, "kubernetes", created=time.time(), notes=attached.notes
        )

    @cached_property
    def reattacher(self) -> Reattacher:
        task, ti = self._task, self._context["ti"]
        return Reattacher(
            backend=self.backend,
            namespace=lambda: str(self._connection.namespace),
            store=self._context["task_state_store"],
            ti=ti,
            instance=instance(),
            retries=task.retries or 0,
            durable=task.durable,
            request=self._request,
            end=self._ending.end,
            clean_up=self._clean_up,
            log=self._task.log.info,
        )

    @cached_property
    def _ending(self) -> Termination:
        return Termination(self._task, self._context["ti"], self.backend, lambda record: self.reattacher.save(record))

    def backend(self, namespace: str) -> KubernetesBackend:
        """Returns the backend for the runs of a namespace."""
        from stepset.backends.kubernetes.backend import KubernetesBackend
        from stepset.watch.cluster.follow_policy import Timeouts

        if namespace not in self._backends:
            self._backends[namespace] = KubernetesBackend(
                self._connection,
                namespace=namespace,
                target=self._task.target or "jobset",
                sources=self.sources,
                timeouts=Timeouts(self._task.admission_timeout, self._task.startup_timeout, quiet=self._quiet_after),
                change_pod=mutate_pod,
                interface="airflow",
            )
        return self._backends[namespace]

    @cached_property
    def sources(self) -> frozenset[str] | None:
        """The sources whose lines the task log shows. None means all sources."""
        from stepset.frameworks import make_plan

        return log_sources(self._task.ranks, make_plan(self._job[0]))

    @property
    def _quiet_after(self) -> float | None:
        """The parameter `quiet_after` of the task. None if the task log does not contain lines of any source."""
        return None if self.sources == frozenset() else self._task.quiet_after

    @cached_property
    def _connection(self) -> Any:
        return connect(self.access)

    @cached_property
    def _job(self) -> tuple[TrainingJob, Sources]:
        from stepset.sources import read_sources

        job, base_dir = self._task.job_and_base(labels_of(self._context["ti"]))
        return job, read_sources(job, base_dir)

    def _request(self, name: str, attempt: int, owner: str) -> RunRequest:
        from stepset.backends.base import RunRequest

        orphan = orphan_stop(self._task.on_orphan, self._task.on_kill_action)
        notes = (NOT_IN_A_POD,) if orphan is None and self._task.on_orphan == "stop" else ()
        self._task.log_warm_start()
        return RunRequest(*self._job, name=name, attempt=attempt, owner=owner, notes=notes, orphan=orphan)

    # --- wait

    def wait(self, attached: AttachedRun, killed: Callable[[], bool]) -> RunStatus:
        """Follows the run in this process until it has finished, and returns its final status.

        If the task is killed, the method raises AirflowException. Before that, it ends the run, unless a retry will
        continue the run.
        """
        assert attached.workload is not None
        backend = self.backend(attached.record.namespace)
        listener = Listeners(self._task.task_log(), self.page(attached.record))
        handle = backend.follow(attached.workload, listener, attached.notes)
        try:
            while not handle.ended(_POLL_INTERVAL):
                if killed():
                    self.close(write=False)  # Airflow kills the process soon, so a write may not complete
                    self._ending.handle_sigterm(attached)
            return handle.wait()
        finally:
            handle.close()
            self.close()

    def end_after_timeout(self) -> None:
        """Applies `on_kill_action` to the run of a task whose execution_timeout has expired.

        The timeout may have interrupted the creation of the run. The record then has no uid, and some objects of the
        run may be missing. If the workload does not exist, the next try creates the run.

        Unless the run continues, the log, the page and the log of the next try state that the timeout has expired.
        """
        from stepset.errors import StepsetError
        from stepset.run_status import Failure, FailureKind, Phase, RunStatus
        from stepset.watch.advice import ADVICE
        from stepset.watch.present.sentences import end_sentence

        self.close()
        record = self.reattacher.stored_record()
        if record is None or record.ended:
            return
        try:
            workload = self.reattacher.find(record)
            if workload is not None or record.uid:
                attached = AttachedRun(record, workload)
                self._ending.stop(attached, RETRY)
                if self._task.on_kill_action == "keep":
                    return
                kind, reason = FailureKind.CANCELLED, timeout_reason(self._task)
                failure = Failure(kind, f"the run was cancelled: {reason}.", ADVICE[kind])
                page = self.page(record, resumed=True)
                before = page.status or RunStatus(record.name, record.name, "kubernetes")
                status = before.with_(phase=Phase.FAILED, reason="", failure=failure)
                self._task.log.warning(end_sentence(status))
                page.on_status(status)
                page.store_try(self._context["task_state_store"])
        except StepsetError as error:
            self._task.log.warning(f"execution_timeout exceeded, but run {record.name} cannot be stopped: {error}")

    def raise_if_task_ended(self, attached: AttachedRun) -> None:
        """Stops the thread that writes the page, then calls `Termination.raise_if_task_ended`."""
        self.close()
        self._ending.raise_if_task_ended(attached)

    def defer(self, attached: AttachedRun, event: Mapping[str, Any] | None = None) -> NoReturn:
        """Defers the task to a trigger that follows the run.

        If the task was deferred before, `event` is the event of the earlier trigger.

        Raises TaskDeferred, or AirflowException if a user has ended the task.
        """
        from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger

        assert attached.workload is not None
        self.raise_if_task_ended(attached)
        task, position = self._task, (event or {}).get("position") or {}
        task_log = task.task_log(position.get("reported"))
        for note in attached.notes:
            task_log.note(note)
        access = replace(self.access, namespace=attached.record.namespace)
        task.defer(
            trigger=DistributedTrainTrigger(
                access=access.to_dict(),
                workload=workload_reference(attached.workload, task.target or "jobset"),
                sources=None if self.sources is None else sorted(self.sources),
                ranks=None if task.ranks is None else sorted(task.ranks),
                callbacks=task.callbacks,
                admission_timeout=task.admission_timeout,
                startup_timeout=task.startup_timeout,
                quiet_after=self._quiet_after,
                poll_interval=task.poll_interval,
                deadline=self._deadline(),
                on_kill_action=task.on_kill_action,
                position={**position, "reported": task_log.reported},
                page=TaskKey.of(self._context["ti"]).to_dict(),
            ),
            method_name="execute_complete",
        )

    def _deadline(self) -> float | None:
        """Returns the time at which execution_timeout expires, in seconds since the epoch.

        Returns None if the task has no execution_timeout. The trigger must check this time, because Airflow does not
        check execution_timeout while a task is deferred.
        """
        limit, ti = self._task.execution_timeout, self._context["ti"]
        if limit is None:
            return None
        started = ti.start_date.timestamp() if ti.start_date is not None else time.time()
        return float(started + limit.total_seconds())

    # --- end

    def resume(self, event: Mapping[str, Any]) -> Any:
        """Continues the task after a trigger's event.

        Raises AirflowTaskTimeout if the event reports that execution_timeout has expired. Otherwise, the result and the
        exceptions are those of `finish`.
        """
        reported, record = reported_status(event), self.reattacher.stored_record()
        if record is None:
            raise AirflowException("no record of the run that this task waited for")
        if record.ended:
            return self.end_as_recorded(record)
        backend = self.backend(record.namespace)
        attached = AttachedRun(record, backend.workload(record.name, record.uid))
        if event.get("late"):
            self.page(record, resumed=True).on_status(reported)  # the page keeps the ranks and the progress
            raise AirflowTaskTimeout(f"execution_timeout exceeded; run {record.name} was {reported.phase.value}")
        # If the run still exists, the state of the run on the cluster takes precedence over the event.
        status = reported
        if attached.workload is not None:
            now = backend.read(attached.workload)
            if now.phase.final:
                status = reported if now.phase is reported.phase else now
            elif not (event.get("gave_up") and reported.phase.final):
                self.defer(attached, event)
            backend.conclude(attached.workload, status, stop=bool(event.get("gave_up")) and status is reported)
        self._task.task_log((event.get("position") or {}).get("reported")).on_status(status)
        self.page(record, resumed=True)
        return self.finish(attached, status)

    def end_as_recorded(self, record: RunRecord) -> Any:
        """Ends the task as stated in the record. An earlier worker wrote the record and died before the task ended.

        The result and the exceptions are those of `finish`.
        """
        from stepset.run_status import RunStatus

        status = RunStatus.from_dict(record.status)
        self.page(record).on_status(status)
        self._clean_up(record)
        return self._outcome(status, record.ended)

    def finish(self, attached: AttachedRun, status: RunStatus) -> Any:
        """Records the end of a completed run, and ends the task.

        If the run was successful, returns the result of the run. Otherwise, raises the exception that
        `DistributedTrainOperator.failure` returns.
        """
        from stepset.run_status import Phase
        from stepset.watch.cluster.verdict import verdict_text

        status = masked_result(status)
        succeeded = status.phase is Phase.SUCCEEDED
        ended = SUCCEEDED if succeeded else outcome_of(status.failure, self._task.exit_code_policy)
        stored = None if ended == RETRY else transferable(json.loads(verdict_text(status)))
        record = attached.record.with_end(ended, stored)
        saved = self.reattacher.save_end(record, self._task.log.warning)
        self.page(record).on_status(status)
        if attached.workload is not None and saved:
            self._clean_up(record, attached.workload)
        return self._outcome(status, ended)

    def _clean_up(self, record: RunRecord, workload: Mapping[str, Any] | None = None) -> None:
        """Deletes the objects of a completed run if `on_finish_action` requires it.

        If `workload` is None, the method reads the workload from the cluster. If this workload is only suspended, the
        method deletes nothing.
        """
        from stepset.backends.kubernetes.stop import delete_ended
        from stepset.errors import StepsetError

        if not should_delete(self._task.on_finish_action, record.ended == SUCCEEDED):
            return
        try:
            backend = self.backend(record.namespace)
            if workload is None:
                found = backend.workload(record.name, record.uid)
                workload = found if found is not None and backend.read(found).phase.final else None
            if workload is not None:
                backend.end(workload, delete_ended)
        except StepsetError as error:
            self._task.log.warning(f"run {record.name} is over, but its objects cannot be deleted: {error}")

    def _outcome(self, status: RunStatus, ended: str) -> Any:
        self.close()
        if status.failure is not None and self._task.link_fields is not None:
            self._task.link_fields = self._task.link_fields.with_failure(status.failure)
        if ended != SUCCEEDED:
            if self._page is not None:
                self._page.store_try(self._context["task_state_store"])
            raise self._task.failure(status, ended)
        return task_result(self._task, self._context, status)

    def lost_status(self, record: RunRecord) -> RunStatus:
        """Returns the status of a run whose workload no longer exists. The outcome of such a run is unknown."""
        from stepset.run_status import Failure, FailureKind, Phase, RunStatus
        from stepset.watch.advice import ADVICE

        text = f"run {record.name} no longer exists in namespace {record.namespace}; how it ended is unknown."
        failure = Failure(FailureKind.LOST, text, ADVICE[FailureKind.LOST])
        return RunStatus(record.name, record.name, "kubernetes", phase=Phase.LOST, failure=failure)


def instance() -> str:
    """Returns the name of this Airflow deployment.

    The name is the option [stepset] instance. If the option is not set, the name is the URL of the API server.
    """
    return str(conf.get("stepset", "instance", fallback="") or conf.get("api", "base_url", fallback=""))
