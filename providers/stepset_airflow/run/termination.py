"""Ends the run of a task if a user ended the task, if the worker is shutting down, or if the task timed out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowException

from stepset_airflow.run.clusters import AttachedRun, Clusters
from stepset_airflow.run.record_store import RecordStore
from stepset_airflow.run_record import RETRY, START_NEW, RunRecord
from stepset_airflow.task_state import DELETED, is_ended, state_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from stepset_airflow.run.training_task import TrainingTask

TERMINATION_TIMEOUT = 180.0
"""Maximum seconds to wait until an earlier run has terminated. In this time the run may write a checkpoint."""

_POLL_INTERVAL = 1.0


def timeout_reason(task: BaseOperator) -> str:
    """Returns the reason for stopping a run whose task has exceeded its execution_timeout."""
    from stepset.watch.present.sentences import duration

    limit = task.execution_timeout
    return f"execution_timeout{f' ({duration(limit.total_seconds())})' if limit else ''} expired"


@dataclass(frozen=True)
class Termination:
    """Ends the run of a task according to `on_kill_action` and `durable`.

    Args:
        task: the task.
        ti: the task instance.
        clusters: the clusters of the task.
        records: the record of the run for later executions of the task.
    """

    task: TrainingTask
    ti: RuntimeTaskInstanceProtocol
    clusters: Clusters
    records: RecordStore

    def handle_sigterm(self, attached: AttachedRun) -> NoReturn:
        """Handles SIGTERM. Airflow sends SIGTERM if a user ended the task, or if the worker is shutting down.

        Raises AirflowException. The message of the exception states what happens to the run.
        """
        state, name = self._state(), attached.record.name
        if self.task.durable and not is_ended(state):
            raise AirflowException(f"the worker is shutting down; run {name} continues, and a retry follows it")
        self._end_for_killed_task(attached, state)

    def raise_if_task_ended(self, attached: AttachedRun) -> None:
        """Ends the run and raises AirflowException if a user has ended the task since this worker started.

        This method must be called before the task is deferred. If a user has ended the task, Airflow refuses the
        deferral. The run would then continue without a process that follows the run.
        """
        if is_ended(state := self._state()):
            self._end_for_killed_task(attached, state)

    def stop(self, attached: AttachedRun, ended: str | None) -> None:
        """Applies `on_kill_action` to the run, and stores `ended` in the run's record.

        The record is not changed if `ended` is None, or if `on_kill_action` is `keep`.
        """
        if attached.workload is not None:
            self.end(attached.record, attached.workload)
        if ended is not None and self.task.on_kill_action != "keep":
            self.records.save(attached.record.with_end(ended))

    def end(self, record: RunRecord, workload: Mapping[str, Any]) -> None:
        """Deletes, suspends or keeps the workload of a record, according to `on_kill_action`."""
        from stepset.backends.kubernetes.stop import delete, suspend

        action = self.task.on_kill_action
        if action == "keep":
            self.task.log.warning(f"run {workload['metadata']['name']} continues: on_kill_action is keep")
        else:
            self.clusters.backend(record).end(workload, suspend if action == "suspend" else delete)

    def end_completely(self, record: RunRecord, workload: Mapping[str, Any]) -> None:
        """Ends the run of an earlier try, and waits until the pods of the run have terminated.

        Otherwise, these pods could write to files that the next run uses.
        """
        from stepset.errors import InfrastructureError

        self.end(record, workload)
        backend, metadata = self.clusters.backend(record), workload["metadata"]
        until = time.monotonic() + TERMINATION_TIMEOUT
        while not backend.gone(workload):
            existing = backend.workload(metadata["name"], metadata["uid"])
            if existing is not None and not existing["metadata"].get("deletionTimestamp"):
                return  # on_kill_action is suspend or keep
            if time.monotonic() > until:
                raise InfrastructureError(
                    f"run {metadata['name']} of an earlier try is still ending after {TERMINATION_TIMEOUT:.0f} s;"
                    " check its pods"
                )
            time.sleep(_POLL_INTERVAL)

    def _end_for_killed_task(self, attached: AttachedRun, state: str | None) -> NoReturn:
        self.stop(attached, {"restarting": START_NEW, DELETED: None}.get(state or "", RETRY))
        raise AirflowException(f"run {attached.record.name} was stopped because its task was killed")

    def _state(self) -> str | None:
        """Returns the result of `state_of` for the task instance. Returns None if the query fails."""
        try:
            return state_of(self.ti)
        except Exception as error:  # noqa: BLE001  # the run continues while the state is unknown
            self.task.log.warning(f"the task's state cannot be queried: {error}")
            return None
