"""Runs the job of a task on a cluster.

The operator first calls `ClusterRun.begin`, which creates or finds the run. Then the worker follows the run. If the
task is deferred, a trigger follows the run instead of the worker. Finally, the operator calls `ClusterRun.finish`,
which handles the end of the run. Only the creation of a run reads the job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import conf
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout

from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.identity import TaskIdentity, epoch
from stepset_airflow.links.training import LinkFields
from stepset_airflow.logs.task_log import Listeners
from stepset_airflow.page.page_xcom import TaskKey
from stepset_airflow.page.past_tries import failure_of
from stepset_airflow.run.clusters import AttachedRun, Clusters
from stepset_airflow.run.create import RunCreator, TaskJob
from stepset_airflow.run.exit_policy import outcome_of, should_delete
from stepset_airflow.run.record_store import RecordStore
from stepset_airflow.run.task_result import task_result
from stepset_airflow.run.termination import Termination, timeout_reason
from stepset_airflow.run.training_task import TrainingTask
from stepset_airflow.run.trigger_event import reported_status
from stepset_airflow.run.try_reason import try_reason
from stepset_airflow.run_record import (
    RETRY,
    SUCCEEDED,
    Finished,
    FollowSettings,
    Reattach,
    RunRecord,
    StartNew,
    next_step,
)
from stepset_airflow.transferable import masked_status, transferable
from stepset_airflow.triggers.workload_reference import workload_reference

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.run_status import RunStatus
    from stepset_airflow.page.writer import PageWriter

_POLL_INTERVAL = 0.2
"""Number of seconds between two checks that detect whether the task was killed."""


_TRIGGER_SETTINGS = ("sources", "ranks", "admission_timeout", "startup_timeout", "quiet_after")
"""The fields of `FollowSettings` that are parameters of the trigger."""


class ClusterRun:
    """The run of one task instance. Airflow must have rendered the fields of `task`."""

    def __init__(self, task: TrainingTask, context: Context) -> None:
        self._task, self._context = task, context
        self._page: PageWriter | None = None
        self._clusters = Clusters()
        self._records = RecordStore(context["task_state_store"])
        self._identity = TaskIdentity(context["ti"], instance(), task.retries or 0)
        self._ending = Termination(task, context["ti"], self._clusters, self._records)

    # --- start

    def begin(self, killed: Callable[[], bool]) -> AttachedRun:
        """Creates the run, or finds the run that an earlier execution of the task created.

        Raises AirflowException if the task was killed before the run was created. Also raises the errors of
        `RunCreator.run`.
        """
        record = self._records.read()
        if record is None and killed():
            raise AirflowException("no run was created, because its task was killed")
        step = next_step(record, self._identity.epoch, self._task.durable)
        if isinstance(step, StartNew) and (found := self._unrecorded_success(step)) is not None:
            return found
        try_number, failure = self._context["ti"].try_number, partial(failure_of, self._context["task_state_store"])
        if reason := try_reason(step, record, self._identity.epoch, try_number, failure):
            self._task.log.info(reason)
        if isinstance(step, Finished):
            return AttachedRun(step.record, found=True)
        if isinstance(step, StartNew) and step.before is not None and step.before.ended:
            self._clean_up(step.before)
        attached = self._creator.run(step)
        if attached.found and not (isinstance(step, Reattach) and step.record.uid):
            self._task.log.info(f"run {attached.record.name} exists already; this try follows it")
        if attached.workload is not None:
            self.page(attached.record).on_status(self._initial_status(attached))
        return attached

    def _unrecorded_success(self, step: StartNew) -> AttachedRun | None:
        """Returns the run of a cleared task if the run has succeeded, and if no try of the task has recorded this end.

        For example, the DAG file may have been invalid when the run succeeded. Without this rule, the training would be
        repeated, although its result exists.
        """
        before, task = step.before, self._task
        if before is None or before.ended or not before.uid or not (task.durable and task.wait_for_completion):
            return None
        if (attached := self._clusters.succeeded(before, self._identity.epoch)) is not None:
            self._records.save(attached.record)
            task.log.info(
                f"this try ends with run {before.name}, because the run has succeeded, and an earlier try of this task"
                " ended before it could record the result; to start a new training, clear the task again"
            )
        return attached

    def page(self, record: RunRecord, *, resumed: bool = False) -> PageWriter:
        """Returns the writer of the run's page. `resumed` states whether a trigger has already written the page."""
        from stepset_airflow.page.writer import open_page
        from stepset_airflow.run.parameters import parameters_of

        if self._page is None:
            task = self._task
            extra_fields: dict[str, Any] = {
                "namespace": record.namespace,
                "target": record.follow.target,
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

        record = attached.record
        return RunStatus(
            record.name, record.follow.job or record.name, "kubernetes", created=time.time(), notes=attached.notes
        )

    @property
    def _creator(self) -> RunCreator:
        task = self._task
        return RunCreator(
            job=TaskJob(task, self._context),
            access=ClusterAccess.of(task),
            target=task.target or FollowSettings.target,
            clusters=self._clusters,
            records=self._records,
            termination=self._ending,
            identity=self._identity,
        )

    # --- wait

    def wait(self, attached: AttachedRun, killed: Callable[[], bool]) -> RunStatus:
        """Follows the run in this process until it has finished, and returns its final status.

        If the task is killed, the method ends the run, unless a retry will continue the run, and then raises
        AirflowException.
        """
        assert attached.workload is not None
        record = attached.record
        backend = self._clusters.backend(record)
        listener = Listeners(self._task.task_log(record.follow.ranks), self.page(record))
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

    def end_after_timeout(self) -> RunStatus | None:
        """Applies `on_kill_action` to the run of a task whose execution_timeout has expired.

        The timeout may have interrupted the creation of the run. The record then has no uid, and some objects of the
        run may be missing. If the workload does not exist, the next try creates the run. Unless the run continues, the
        log, the page and the log of the next try state that the timeout has expired. Returns the status of such a run.
        """
        from stepset.errors import StepsetError
        from stepset.run_status import Failure, FailureKind, Phase, RunStatus
        from stepset.watch.advice import ADVICE
        from stepset.watch.hangs.stalled import with_known_hang
        from stepset.watch.present.sentences import end_sentence

        self.close()
        record = self._records.read()
        if record is None or record.ended:
            return None
        try:
            workload = self._clusters.find(record, self._identity.owner)
            if workload is not None or record.uid:
                self._ending.stop(AttachedRun(record, workload), RETRY)
                if self._task.on_kill_action == "keep":
                    return None
                kind, reason = FailureKind.CANCELLED, timeout_reason(self._task)
                page = self.page(record, resumed=True)
                before = page.status or RunStatus(record.name, record.name, "kubernetes")
                failure = Failure(kind, f"the run was cancelled: {reason}.", ADVICE[kind])
                status = before.with_(phase=Phase.FAILED, reason="", failure=with_known_hang(failure, before.hang))
                self._task.log.warning(end_sentence(status))
                page.on_status(status)
                page.store_try(self._context["task_state_store"])
                return status
        except StepsetError as error:
            self._task.log.warning(f"execution_timeout exceeded, but run {record.name} cannot be stopped: {error}")
        return None

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
        record, follow = attached.record, attached.record.follow
        settings = follow.to_dict()
        task_log = task.task_log(follow.ranks, position.get("reported"))
        for note in attached.notes:
            task_log.note(note)
        task.defer(
            trigger=DistributedTrainTrigger(
                access=replace(follow.access, namespace=record.namespace).to_dict(),
                workload=workload_reference(attached.workload, follow.target),
                **{name: settings[name] for name in _TRIGGER_SETTINGS},
                callbacks=task.callbacks,
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
        reported, record = reported_status(event), self._records.read()
        if record is None:
            raise AirflowException("no record of the run that this task waited for")
        if record.ended:
            return self.end_as_recorded(record)
        backend = self._clusters.backend(record)
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
        reported_before = (event.get("position") or {}).get("reported")
        self._task.task_log(record.follow.ranks, reported_before).on_status(status)
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

        status = masked_status(status)
        succeeded = status.phase is Phase.SUCCEEDED
        ended = SUCCEEDED if succeeded else outcome_of(status.failure, self._task.exit_code_policy)
        stored = None if ended == RETRY else transferable(json.loads(verdict_text(status)))
        record = attached.record.with_end(ended, stored)
        saved = self._records.save_end(record, self._task.log.warning)
        self.page(record).on_status(status)
        if attached.workload is not None and saved:
            self._clean_up(record, attached.workload)
        return self._outcome(status, ended)

    def _clean_up(self, record: RunRecord, workload: Mapping[str, Any] | None = None) -> None:
        """Deletes the objects of a completed run if `on_finish_action` requires this.

        If `workload` is None, the method reads the workload from the cluster. If this workload is only suspended, the
        method deletes nothing.
        """
        from stepset.backends.kubernetes.stop import delete_ended
        from stepset.errors import StepsetError

        if not should_delete(self._task.on_finish_action, record.ended == SUCCEEDED):
            return
        try:
            backend = self._clusters.backend(record)
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


def follows_cluster_run(task: TrainingTask, context: Context) -> bool:
    """Returns whether this try of a task continues or ends a run on a cluster, for any current backend of the task."""
    from stepset.errors import BadInputError

    if context["ti"].try_number == 1:
        return False
    try:
        record = RecordStore(context["task_state_store"]).read()
    except BadInputError:
        return True  # `ClusterRun.begin` reports the error
    step = next_step(record, epoch(context["ti"], task.retries or 0), task.durable)
    return not isinstance(step, StartNew)
