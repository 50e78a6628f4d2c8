"""Ends a task's run early: because a user ended the task, its worker is shutting down, or it timed out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowException

from stepset_airflow.run.run_record import RETRY, START_NEW, RunRecord
from stepset_airflow.task_state import DELETED, is_ended, state_of

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset_airflow.run.reattach import Reattachment
    from stepset_airflow.run.training_task import TrainingTask


@dataclass(frozen=True)
class Termination:
    """Ends the run of a task as its `on_kill_action` and `durable` say; `save` stores a record for later executions."""

    task: TrainingTask
    ti: RuntimeTaskInstanceProtocol
    backend: Callable[[str], KubernetesBackend]
    save: Callable[[RunRecord], None]

    def killed(self, attached: Reattachment) -> NoReturn:
        """Handles SIGTERM (a user ended the task, or the worker is shutting down); raises AirflowException.

        Its message states what happens to the run.
        """
        state, name = self._state(), attached.record.name
        if self.task.durable and not is_ended(state):
            raise AirflowException(f"the worker was told to end; run {name} goes on, and a retry goes on with it")
        self._for_good(attached, state)

    def check_wanted(self, attached: Reattachment) -> None:
        """Ends the run and raises AirflowException if a user has ended the task since this worker started.

        Called before a deferral: the worker may not know yet that the task was ended, and Airflow then refuses the
        deferral, so that no process would follow the run.
        """
        if is_ended(state := self._state()):
            self._for_good(attached, state)

    def stop(self, attached: Reattachment, ended: str | None) -> None:
        """Ends a run by `on_kill_action`, and stores `ended` in its record; None: the task no longer exists."""
        if attached.workload is not None:
            self.end(self.backend(attached.record.namespace), attached.workload)
        if ended is not None and self.task.on_kill_action != "keep":
            self.save(attached.record.over(ended))

    def end(self, backend: KubernetesBackend, workload: Mapping[str, Any]) -> None:
        """Applies `on_kill_action` to a workload."""
        from stepset.backends.kubernetes.stop import delete, suspend

        action = self.task.on_kill_action
        if action == "keep":
            self.task.log.warning(f"run {workload['metadata']['name']} goes on: on_kill_action is keep")
        else:
            backend.end(workload, suspend if action == "suspend" else delete)

    def _for_good(self, attached: Reattachment, state: str | None) -> NoReturn:
        self.stop(attached, {"restarting": START_NEW, DELETED: None}.get(state or "", RETRY))
        raise AirflowException(f"run {attached.record.name} was stopped because its task was killed")

    def _state(self) -> str | None:
        """As `state_of`; None if Airflow does not answer."""
        try:
            return state_of(self.ti)
        except Exception as error:  # noqa: BLE001  # whatever it is: a run is not ended on a guess
            self.task.log.warning(f"the task's state cannot be asked for: {error}")
            return None
