"""The part of DistributedTrainOperator that is used by the modules of the package `run`.

The modules of the package cannot import the operator, because the operator imports these modules.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from stepset_airflow.links.training import LinkFields
from stepset_airflow.native_templates import NativeTemplates

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.run_status import RunStatus
    from stepset_airflow.logs.task_log import TaskLog


class TrainingTask(NativeTemplates):
    """An operator with the parameters of DistributedTrainOperator, whose docstring describes the parameters."""

    job: Any
    queue_name: str | None
    target: str | None
    durable: bool
    wait_for_completion: bool
    poll_interval: float
    admission_timeout: float | None
    startup_timeout: float | None
    quiet_after: float | None
    exit_code_policy: Mapping[int | str, str] | None
    callbacks: str | Sequence[str] | None
    on_finish_action: str
    on_kill_action: str
    on_orphan: str
    link_fields: LinkFields | None
    """The fields of the run that the links of the task contain. None until the run has been created or found."""

    warm_start_env: Mapping[str, str]
    """The environment variables with the checkpoint of `warm_start`. Empty until this checkpoint has been read."""

    @property
    @abstractmethod
    def ranks(self) -> frozenset[int] | None:
        """The ranks whose lines the task log shows. None means all ranks."""

    @abstractmethod
    def prepare(self, context: Context) -> None:
        """Checks the rendered parameters, and reads the checkpoint of `warm_start`. Called before the job is read.

        Raises AirflowFailException if a parameter is invalid.
        """

    @abstractmethod
    def log_warm_start(self) -> None:
        """Logs the checkpoint of `warm_start`, if there is one. Called immediately before a run is created."""

    @abstractmethod
    def task_log(self, ranks: Collection[int] | None, reported: Mapping[str, object] | None = None) -> TaskLog:
        """Returns a listener that writes the output of a run to this task's log.

        Args:
            ranks: the ranks whose lines the log shows. None means all ranks.
            reported: the value of `TaskLog.reported` in the process that wrote to the log earlier, if there is one.
        """

    @abstractmethod
    def failure(self, status: RunStatus, outcome: str) -> AirflowException:
        """Returns the exception that ends the task. `outcome` is `fail`, `retry` or `skip`."""

    @abstractmethod
    def report_to_assets(self, context: Context, status: RunStatus) -> None:
        """Adds the result of the run to the asset events of the task's outlets.

        An asset event may start other DAGs. These DAGs can then read the result.
        """
