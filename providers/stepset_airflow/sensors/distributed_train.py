"""DistributedTrainSensor: waits for a run that the CLI, KFP or another DAG started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import StartTriggerArgs

from stepset_airflow.exceptions import TrainingTaskError
from stepset_airflow.hooks.cluster import TEMPLATED, ClusterAccess, connect
from stepset_airflow.run.trigger_event import reported_status

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.run_status import RunStatus


class DistributedTrainSensor(BaseSensorOperator):
    """Waits until a run is over; the run's result is the task's XCom.

    The run may be created after the sensor starts.

    Args:
        run_name: the run's name.
        target: kind of the run's object: jobset, trainjob, statefulset, job or volcano.
        deferrable: wait in the triggerer. Default: [operators] default_deferrable.
        start_from_trigger: wait in the triggerer from the start, so that the task needs no worker until the run ends.
        poll_interval: seconds between two requests of the triggerer for a run that does not exist yet.
        kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file: as for the operator.
    """

    template_fields: Sequence[str] = ("run_name", "target", *TEMPLATED)
    ui_color = "#e9e4f8"

    def __init__(
        self,
        *,
        run_name: str,
        target: str = "jobset",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        start_from_trigger: bool = False,
        poll_interval: float = 10,
        kubernetes_conn_id: str = "kubernetes_default",
        namespace: str | None = None,
        in_cluster: bool | None = None,
        cluster_context: str | None = None,
        config_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.run_name = run_name
        self.target = target
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.kubernetes_conn_id = kubernetes_conn_id
        self.namespace = namespace
        self.in_cluster = in_cluster
        self.cluster_context = cluster_context
        self.config_file = config_file
        self.start_from_trigger = start_from_trigger
        if start_from_trigger:
            self.start_trigger_args = StartTriggerArgs(
                trigger_cls="stepset_airflow.triggers.run_end.RunEndTrigger",
                trigger_kwargs=self._trigger_fields(),
                next_method="execute_complete",
            )

    def execute(self, context: Context) -> Any:
        """Waits; returns and raises like `execute_complete`."""
        from stepset_airflow.triggers.run_end import RunEndTrigger

        if not self.deferrable:
            return super().execute(context)
        return self.defer(trigger=RunEndTrigger(**self._trigger_fields()), method_name="execute_complete")

    def poke(self, context: Context) -> PokeReturnValue:
        """Returns whether the run is over, with its result."""
        from stepset.backends.kubernetes.backend import KubernetesBackend
        from stepset.errors import BadInputError, InfrastructureError

        try:
            with connect(ClusterAccess.of(self)) as connection:
                backend = KubernetesBackend(connection, target=self.target, interface="airflow")
                workload = backend.workload(self.run_name)
                status = None if workload is None else backend.read(workload)
        except BadInputError as error:
            raise AirflowFailException(str(error)) from error
        except InfrastructureError as error:
            self.log.warning(str(error))
            status = None
        if status is None or not status.phase.final:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._result(status))

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Returns the result of the run that the trigger's event reports.

        Raises:
            TrainingTaskError: the run failed.
            AirflowException: the trigger could not follow the run.
        """
        return self._result(reported_status(event))

    def _result(self, status: RunStatus) -> Any:
        from stepset.run_status import Phase

        if status.phase is Phase.SUCCEEDED:
            return status.result
        raise TrainingTaskError.of(status)

    def _trigger_fields(self) -> dict[str, Any]:
        return {
            "run_name": self.run_name,
            "target": self.target,
            "poll_interval": self.poll_interval,
            **ClusterAccess.of(self).to_dict(),
        }
