"""DistributedTrainSensor: waits for a run that the CLI, KFP or another DAG started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import StartTriggerArgs

from stepset_airflow.airflow_internals import checked_partial, is_unmapping
from stepset_airflow.exceptions import TrainingTaskError
from stepset_airflow.hooks.cluster import TEMPLATED, ClusterAccess, connect
from stepset_airflow.parsing.arguments import check_names, check_rendered, check_sensor
from stepset_airflow.parsing.values import sensor_problems
from stepset_airflow.run.trigger_event import reported_status

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.run_status import RunStatus
    from stepset_airflow.airflow_internals import OperatorPartial

PARAMETERS = (
    "run_name",
    "backend",
    "target",
    "deferrable",
    "start_from_trigger",
    "poll_interval",
    "kubernetes_conn_id",
    "namespace",
    "in_cluster",
    "cluster_context",
    "config_file",
)
"""The sensor's own parameters."""


class DistributedTrainSensor(BaseSensorOperator):
    """Waits until a run is over; the run's result is the task's XCom.

    The run may be created after the sensor starts.

    Args:
        run_name: the run's name.
        backend: `kubernetes`, or `local` for a run on the worker's machine, whose files the worker's user can read;
            default: [stepset] backend, else kubernetes. A worker waits for a local run, in either `mode` of a sensor.
        target: kind of the run's object: jobset, trainjob, statefulset, job or volcano; not used by `local`.
        deferrable: wait in the triggerer; default: [operators] default_deferrable; not used by `local`.
        start_from_trigger: wait in the triggerer from the start, so that the task needs no worker until the run ends;
            not possible with `local`.
        poll_interval: seconds between two requests of the triggerer for a run that does not exist yet; not used by
            `local`, for which a worker looks every `poke_interval` seconds.
        kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file: as for the operator; not used by
            `local`.

    Raises:
        ValueError: a parameter has an invalid value, as far as it is not templated.
        TypeError: an unknown parameter.
    """

    template_fields: Sequence[str] = ("run_name", "backend", "target", *TEMPLATED)
    ui_color = "#e9e4f8"

    def __init__(
        self,
        *,
        run_name: str,
        backend: str | None = None,
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
        check_names(type(self), kwargs, kwargs, in_sensor=True)
        super().__init__(**kwargs)
        self.run_name = run_name
        self.backend = backend
        self.target = target
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.kubernetes_conn_id = kubernetes_conn_id
        self.namespace = namespace
        self.in_cluster = in_cluster
        self.cluster_context = cluster_context
        self.config_file = config_file
        self.start_from_trigger = start_from_trigger and self._backend != "local"
        if not is_unmapping(self):
            check_sensor(type(self), {**self._arguments(), "start_from_trigger": start_from_trigger}, kwargs)
        if self.start_from_trigger:
            self.start_trigger_args = StartTriggerArgs(
                trigger_cls="stepset_airflow.triggers.run_end.RunEndTrigger",
                trigger_kwargs=self._trigger_fields(),
                next_method="execute_complete",
            )

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Returns the sensor with constant arguments, to be mapped over others; raises like the constructor."""

        def check(arguments: Mapping[str, Any]) -> None:
            check_names(cls, arguments, kwargs, in_sensor=True)

        check(kwargs)
        check_sensor(cls, {name: value for name, value in kwargs.items() if name in PARAMETERS}, kwargs)
        return checked_partial(super().partial(**kwargs), check)

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in PARAMETERS}

    @property
    def _backend(self) -> str:
        return self.backend or str(conf.get("stepset", "backend", fallback="kubernetes"))

    def execute(self, context: Context) -> Any:
        """Waits; returns and raises like `execute_complete`."""
        from stepset_airflow.triggers.run_end import RunEndTrigger

        check_rendered({**self._arguments(), "backend": self._backend}, sensor_problems)
        if not self.deferrable or self._backend == "local":
            return super().execute(context)
        return self.defer(trigger=RunEndTrigger(**self._trigger_fields()), method_name="execute_complete")

    def poke(self, context: Context) -> PokeReturnValue:
        """Returns whether the run is over, with its result."""
        from stepset.errors import BadInputError, InfrastructureError

        try:
            status = self._read_local() if self._backend == "local" else self._read()
        except BadInputError as error:
            raise AirflowFailException(str(error)) from error
        except InfrastructureError as error:
            self.log.warning(str(error))
            status = None
        if status is None or not status.phase.final:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._result(status))

    def _read(self) -> RunStatus | None:
        """Returns the status of the run on the cluster; None if it does not exist."""
        from stepset.backends.kubernetes.backend import KubernetesBackend

        with connect(ClusterAccess.of(self)) as connection:
            backend = KubernetesBackend(connection, target=self.target, interface="airflow")
            workload = backend.workload(self.run_name)
            return None if workload is None else backend.read(workload)

    def _read_local(self) -> RunStatus | None:
        """Returns the status of the run on this machine; None if it does not exist."""
        from stepset.backends.local import LocalBackend
        from stepset.errors import RunNotFoundError

        try:
            status = LocalBackend().status(self.run_name)
        except RunNotFoundError as error:
            self.log.info(f"{error}; the sensor waits for it on this machine")
            return None
        return status if status.name == self.run_name else None  # `status` also accepts a job's name

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
