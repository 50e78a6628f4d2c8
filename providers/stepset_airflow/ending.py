"""A task's run that ends before its time: because a user, a worker or the clock has ended the task.

Used by cluster_run.py. When a run is over by itself is not asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowException

from stepset_airflow.record import ANEW, RETRY, Record
from stepset_airflow.task_state import DELETED, is_ended, state_of

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset_airflow.claim import Claim
    from stepset_airflow.operators import DistributedTrainOperator


@dataclass(frozen=True)
class Ending:
    """What becomes of a run whose task is ended.

    Args:
        task: the operator; its `on_kill_action` and `durable` count.
        ti: its task instance.
        backend: the one in a namespace.
        save: remembers a record for later executions of the task.
    """

    task: DistributedTrainOperator
    ti: RuntimeTaskInstanceProtocol
    backend: Callable[[str], KubernetesBackend]
    save: Callable[[Record], None]

    def killed(self, claim: Claim) -> NoReturn:
        """The process is told to end: by a user who does not want the task, or because the worker goes away.

        Raises:
            AirflowException: always; it tells what becomes of the run.
        """
        state, name = self._state(), claim.record.name
        if self.task.durable and not is_ended(state):
            raise AirflowException(f"the worker was told to end; run {name} goes on, and a retry goes on with it")
        self._for_good(claim, state)

    def check_wanted(self, claim: Claim) -> None:
        """Before the run is left to others: ends it if a user has ended the task since this worker began.

        The worker may not have heard of that yet, and Airflow then refuses the deferral: the run would have nobody.

        Raises:
            AirflowException: so it was.
        """
        if is_ended(state := self._state()):
            self._for_good(claim, state)

    def stop(self, claim: Claim, ended: str | None) -> None:
        """Ends a run as `on_kill_action` has it.

        Args:
            claim: of the run.
            ended: what a later execution of the task is to know; None: there is no such task any more.
        """
        if claim.workload is not None:
            self.end(self.backend(claim.record.namespace), claim.workload)
        if ended is not None and self.task.on_kill_action != "keep":
            self.save(claim.record.over(ended))

    def end(self, backend: KubernetesBackend, workload: Mapping[str, Any]) -> None:
        """Does to a run's object what `on_kill_action` says.

        Args:
            backend: the one in its namespace.
            workload: the object on top.
        """
        from stepset.backends.kubernetes.stop import delete, suspend

        action = self.task.on_kill_action
        if action == "keep":
            self.task.log.warning(f"run {workload['metadata']['name']} goes on: on_kill_action is keep")
        else:
            backend.end(workload, suspend if action == "suspend" else delete)

    def _for_good(self, claim: Claim, state: str | None) -> NoReturn:
        self.stop(claim, {"restarting": ANEW, DELETED: None}.get(state or "", RETRY))
        raise AirflowException(f"run {claim.record.name} was stopped because its task was killed")

    def _state(self) -> str | None:
        """As `state_of` has it; None where Airflow does not say."""
        try:
            return state_of(self.ti)
        except Exception as error:  # noqa: BLE001  # whatever it is: a run is not ended on a guess
            self.task.log.warning(f"the task's state cannot be asked for: {error}")
            return None
