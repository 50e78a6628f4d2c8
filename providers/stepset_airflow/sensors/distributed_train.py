"""DistributedTrainSensor, which waits for a run that the CLI, KFP or another DAG started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import StartTriggerArgs

from stepset_airflow.airflow_internals import checked_partial, is_unmapping
from stepset_airflow.exceptions import TrainingTaskError
from stepset_airflow.hooks.cluster import TEMPLATED, ClusterAccess, connect
from stepset_airflow.logs.task_log import TaskLog
from stepset_airflow.missing_run import missing_run
from stepset_airflow.native_templates import NativeTemplates
from stepset_airflow.parsing.arguments import check_names, check_rendered, check_sensor
from stepset_airflow.parsing.mapped import Instances, check_instances
from stepset_airflow.parsing.unknown_parameters import own_parameters, take_unknown
from stepset_airflow.parsing.values import in_seconds, sensor_problems
from stepset_airflow.run.task_result import result_of
from stepset_airflow.run.trigger_event import reported_status
from stepset_airflow.transferable import masked_status

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow.sdk import Context

    from stepset.run_status import RunStatus
    from stepset_airflow.airflow_internals import OperatorPartial


class DistributedTrainSensor(NativeTemplates, BaseSensorOperator):
    """Waits until a run has finished. The XCom of the task is the result of the run.

    The sensor may start before the run is created.

    Args:
        run_name: the name of the run (required). The name of a job or a task is not the name of a run.
        backend: `kubernetes`, or `local` for a run on the worker's machine. The default is the option [stepset]
            backend. If the option is not set, the default is `kubernetes`. For a local run, the sensor always
            waits in a worker. The worker's user must be able to read the files of the run.
        target: the kind of the Kubernetes object that represents the run. The target is jobset (default), trainjob,
            statefulset, job or volcano. The backend `local` ignores this parameter.
        deferrable: whether the task waits in the triggerer. The default is the option [operators] default_deferrable.
            The backend `local` ignores this parameter.
        start_from_trigger: whether the task starts in the triggerer. The task then needs no worker until the run has
            finished. The backend `local` does not support this.
        poll_interval: the interval between two requests that the triggerer sends while the run does not exist. The
            value is a number of seconds, text such as `5m`, or a timedelta. The backend `local` ignores this parameter,
            because the worker checks a local run every `poke_interval` seconds.
        kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file: the cluster and the namespace of the
            run. These parameters have the same meaning as in DistributedTrainOperator. The backend `local` ignores
            these parameters.

    Raises:
        ValueError: a parameter has an invalid value that is not a template.
        TypeError: a parameter is unknown.
    """

    template_fields: Sequence[str] = ("run_name", "backend", "target", *TEMPLATED)
    ui_color = "#e9e4f8"

    def __init__(
        self,
        *,
        run_name: str | None = None,
        backend: str | None = None,
        target: str = "jobset",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        start_from_trigger: bool = False,
        poll_interval: float | str | timedelta = 10,
        kubernetes_conn_id: str = "kubernetes_default",
        namespace: str | None = None,
        in_cluster: bool | None = None,
        cluster_context: str | None = None,
        config_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        unknown = take_unknown(type(self), kwargs, unmapping=is_unmapping(self))
        super().__init__(**kwargs)
        self.run_name = run_name or ""
        self.backend = backend
        self.target = target
        self.deferrable = deferrable
        self.poll_interval = in_seconds(poll_interval)
        self.kubernetes_conn_id = kubernetes_conn_id
        self.namespace = namespace
        self.in_cluster = in_cluster
        self.cluster_context = cluster_context
        self.config_file = config_file
        self._last_note = ""
        self.start_from_trigger = start_from_trigger and self._backend != "local"
        if is_unmapping(self):
            check_names(type(self), unknown, kwargs, in_sensor=True)
        else:
            given = {"run_name": run_name, "start_from_trigger": start_from_trigger}
            check_sensor(type(self), {**self._arguments(), **given}, unknown, kwargs)
        if self.start_from_trigger:
            self.start_trigger_args = StartTriggerArgs(
                trigger_cls="stepset_airflow.triggers.run_end.RunEndTrigger",
                trigger_kwargs=self._trigger_fields(),
                next_method="execute_complete",
            )

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Returns a sensor whose `expand` adds mapped arguments. Raises the errors of the constructor."""

        def check(arguments: Mapping[str, Any] | None, instances: Instances) -> None:
            check_names(cls, arguments or (), kwargs, in_sensor=True)
            check_instances(instances, kwargs, check_instance)

        def check_instance(instance: Mapping[str, Any]) -> None:
            check_names(cls, instance, kwargs, in_sensor=True)
            known = {name: value for name, value in instance.items() if name in parameters}
            check_sensor(cls, {**values, **known}, (), kwargs)

        parameters = own_parameters(DistributedTrainSensor)
        values = {name: value for name, value in kwargs.items() if name in parameters}
        check_sensor(cls, values, take_unknown(cls, dict(kwargs)), kwargs)
        return checked_partial(super().partial(**kwargs), check)

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in own_parameters(DistributedTrainSensor)}

    @property
    def _backend(self) -> str:
        return self.backend or str(conf.get("stepset", "backend", fallback="kubernetes"))

    def execute(self, context: Context) -> Any:
        """Waits until the run has finished. The result and the exceptions are those of `execute_complete`."""
        from stepset_airflow.triggers.run_end import RunEndTrigger

        check_rendered({**self._arguments(), "backend": self._backend}, sensor_problems)
        if not self.deferrable or self._backend == "local":
            return super().execute(context)
        return self.defer(trigger=RunEndTrigger(**self._trigger_fields()), method_name="execute_complete")

    def poke(self, context: Context) -> PokeReturnValue:
        """Returns whether the run has finished. If the run has finished, the returned value contains the result."""
        from stepset.errors import BadInputError, InfrastructureError

        try:
            status, missing = self._read_local() if self._backend == "local" else self._read()
        except BadInputError as error:
            raise AirflowFailException(str(error)) from None
        except InfrastructureError as error:
            self._last_note = ""
            self.log.warning(str(error))
            return PokeReturnValue(is_done=False)
        self._note_missing(missing, context)
        if status is None or not status.phase.final:
            return PokeReturnValue(is_done=False)
        TaskLog(self.log).on_status(status)
        return PokeReturnValue(is_done=True, xcom_value=self._result(status))

    def _note_missing(self, text: str, context: Context) -> None:
        """Logs why the run does not exist, unless the last poke logged the same text.

        If `mode` is `reschedule`, each poke has its own process and does not know the last text. Therefore only the
        first poke logs a text.
        """
        if text and text != self._last_note:
            later = self.reschedule and context["ti"].get_first_reschedule_date(context) is not None
            if not later:
                self.log.warning(text)
        self._last_note = text

    def _read(self) -> tuple[RunStatus | None, str]:
        """Returns the status of the run on the cluster. If the run does not exist, returns None and a message."""
        from stepset.backends.kubernetes.backend import KubernetesBackend
        from stepset.errors import RunNotFoundError

        with connect(ClusterAccess.of(self)) as connection:
            backend = KubernetesBackend(connection, target=self.target, interface="airflow")
            try:
                workload = backend.find(self.run_name)  # also finds the newest run of a job
            except RunNotFoundError:
                return None, missing_run(self.run_name, backend.place)
            if (newest := workload["metadata"]["name"]) != self.run_name:
                return None, missing_run(self.run_name, backend.place, newest)
            return backend.read(workload), ""

    def _read_local(self) -> tuple[RunStatus | None, str]:
        """Returns the status of the run on this machine. If the run does not exist, returns None and a message."""
        from stepset.backends.local import LocalBackend
        from stepset.errors import RunNotFoundError

        backend = LocalBackend()
        try:
            status = backend.status(self.run_name)  # also finds the newest run of a job
        except RunNotFoundError:
            return None, missing_run(self.run_name, backend.place, local=True)
        if status.name != self.run_name:
            return None, missing_run(self.run_name, backend.place, status.name, local=True)
        return status, ""

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Returns the result of the run. The event of the trigger contains the result.

        Raises:
            TrainingTaskError: the run failed.
            AirflowException: the trigger could not follow the run.
        """
        return self._result(reported_status(event))

    def _result(self, status: RunStatus) -> Any:
        from stepset.run_status import Phase

        if status.phase is Phase.SUCCEEDED:
            return result_of(self, masked_status(status))
        raise TrainingTaskError.of(status)

    def _trigger_fields(self) -> dict[str, Any]:
        return {
            "run_name": self.run_name,
            "target": self.target,
            "poll_interval": self.poll_interval,
            **ClusterAccess.of(self).to_dict(),
        }
