"""The interface of DistributedTrainOperator for the modules of `run`, which must not import the operator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from stepset_airflow.links.training import LinkFields

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.run_status import RunStatus
    from stepset.spec import TrainingJob
    from stepset_airflow.logs.task_log import TaskLog


class TrainingTask(BaseOperator):
    """An operator with the parameters of DistributedTrainOperator, which documents them."""

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
    link_fields: LinkFields | None
    """The run's fields for the task's links; None until they are known."""

    @property
    @abstractmethod
    def ranks(self) -> frozenset[int] | None:
        """The ranks whose lines the task log shows; None: all."""

    @abstractmethod
    def job_and_base(self, labels: Mapping[str, str] | None = None) -> tuple[TrainingJob, Path]:
        """Returns the job of the rendered fields and the directory its paths are relative to.

        Raises BadInputError if the job is not valid. `labels` are added to those of the job.
        """

    @abstractmethod
    def task_log(self, reported: Mapping[str, object] | None = None) -> TaskLog:
        """Returns a listener that writes a run to this task's log.

        `reported` is `TaskLog.reported` of another process, which wrote to the log before.
        """

    @abstractmethod
    def failure(self, status: RunStatus, outcome: str) -> AirflowException:
        """Returns the exception that ends the task; the outcome is `fail`, `retry` or `skip`."""

    @abstractmethod
    def report_to_assets(self, context: Context, status: RunStatus) -> None:
        """Adds the result to the events of the task's outlets, for the DAGs that they schedule."""
