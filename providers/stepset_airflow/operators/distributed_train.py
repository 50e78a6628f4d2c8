"""DistributedTrainOperator, which runs a distributed training as one Airflow task.

run/job_fields.py builds the job. run/local_run.py runs the job on the worker. run/cluster_run.py runs the job on a
cluster. logs/task_log.py writes the task log. run/exit_policy.py decides how the task ends. Slow modules are imported
inside functions, because Airflow must be able to parse DAG files quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, AirflowTaskTimeout

from stepset.defaults import JOB_FIELDS, LIST_FIELDS, MAPPING_FIELDS, STARTUP_TIMEOUT
from stepset_airflow.airflow_internals import checked_partial, is_unmapping
from stepset_airflow.assets import event_extra, report_to_assets, resume_warm, start_warm, warm_start_note
from stepset_airflow.exceptions import TrainingTaskError, timeout_error
from stepset_airflow.hooks.cluster import TEMPLATED
from stepset_airflow.links.training import LINKS
from stepset_airflow.logs.task_log import TaskLog, find_callbacks, ranks_to_log
from stepset_airflow.openlineage.mixin import TrainingLineage
from stepset_airflow.parsing.arguments import check_names, check_rendered, check_values
from stepset_airflow.parsing.mapped import Instances, check_mapped
from stepset_airflow.parsing.unknown_parameters import own_parameters, take_unknown
from stepset_airflow.parsing.values import in_seconds
from stepset_airflow.run.exit_policy import skip_reason
from stepset_airflow.run.job_fields import job_of_task, templatable
from stepset_airflow.run.training_task import TrainingTask

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from airflow.sdk import Asset, Context

    from stepset.run_status import RunStatus
    from stepset.spec import TrainingJob
    from stepset_airflow.airflow_internals import OperatorPartial
    from stepset_airflow.run.cluster_run import ClusterRun
    from stepset_airflow.run.local_run import LocalRun


class DistributedTrainOperator(TrainingLineage, TrainingTask):
    """Runs a distributed training and waits until it has finished. The task's XCom is the result that rank 0 wrote.

    Some parameters have the same names as the fields of a job file. The value of such a parameter takes precedence over
    the field in `job`. These parameters are templated. Paths are relative to the directory of the DAG file. Paths in a
    job file are relative to the job file's directory.

    Args:
        job: a TrainingJob, a mapping, or the path of a job file.
        name, framework, num_nodes, procs_per_node, image, script, module, command, function, args, code, requirements,
        env, resources_per_node, storage, checkpoint_dir, roles, restart, hang, deadline, termination_grace_period, ttl,
        scheduling, network, service_account, security, labels, annotations, pod_template, agent: the job file's
            fields (docs/job-file.md).
        queue_name: a shorthand for `scheduling={"queue_name": ...}`. The argument `queue` of every operator selects
            the workers that execute the task.
        backend: `kubernetes`, or `local` for processes of the worker. The default is the configuration option
            [stepset] backend. If the option is not set, the default is `kubernetes`.
        target: the kind of the Kubernetes object that represents the run on a cluster. The target is jobset (default),
            trainjob, statefulset, job or volcano.
        log_ranks: the ranks whose lines are written to the task log: `all`, `failed`, a rank, or a list of ranks. The
            last lines of the failed rank are always written. The default is the option [stepset] log_ranks. If the
            option is not set, the default is 0.
        warm_start: an asset. The asset becomes an inlet of the task. The ranks receive the asset's latest checkpoint in
            the environment variable STEPSET_WARM_START. If no event of the asset contains a checkpoint, the checkpoint
            in the asset's state is used. If the asset has no checkpoint, the variable is not set.
        exit_code_policy: a mapping. Each key is an exit code of the first failing rank, its signal, or a kind of
            failure. Each value is `fail` (no further try), `retry` or `skip`. By default, the task fails without a
            further try if the kind is Rejected or Cancelled. After other failures, the task is retried up to `retries`
            times.
        callbacks: dotted paths of functions that are called with the status, a mapping, after every change of the run.
        durable: whether a retry continues the run of an earlier try. A local run ends with its worker. A retry then
            starts a new run. If `checkpoint_dir` contains a checkpoint, the new run starts from this checkpoint.
        wait_for_completion: whether the task waits for the run. With the backend `local` the task must wait.
        deferrable: whether the task waits in the triggerer. The default is the option [operators] default_deferrable.
            The task of a local run is not deferred, because the run needs its worker.
        kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file: the cluster and the namespace of the
            run. These parameters have the same meaning as in KubernetesPodOperator. The backend `local` ignores these
            parameters, and also `poll_interval`, `admission_timeout`, `startup_timeout` and `quiet_after`.
        poll_interval: the interval between two checks of the time limits while the task is deferred.
        admission_timeout: the maximum time that the run waits in its queue. By default there is no limit.
        startup_timeout: the maximum time from admission until all pods run. The default is 30 minutes.
        quiet_after: the time without lines of `log_ranks` after which a note is written, or None. The values of
            `quiet_after`, `poll_interval`, `admission_timeout` and `startup_timeout` are numbers of seconds, text such
            as `5m`, or timedeltas.
        on_finish_action: what happens to the objects of a completed run: `keep`, `delete` or `delete_succeeded`. The
            backend `local` always keeps the run's directory.
        on_kill_action: what happens to the run of a killed task: `delete`, `suspend` or `keep`. A local run is stopped.
        on_orphan: what happens to the run if the pod of the worker terminates before the run has finished. `keep` does
            not stop the run. `stop` applies `on_kill_action`. With `stop`, no other process may continue the run.
            Therefore `stop` requires `durable=False`, `deferrable=False`, `wait_for_completion=True`, and `delete` or
            `suspend` as `on_kill_action`. A local run always ends with its worker.

    Raises:
        ValueError: the value of a parameter or of a field of the job is invalid, and the value is known when Airflow
            parses the DAG file. Also raised if the script does not exist, or if the image for a run on a cluster is
            missing.
        TypeError: a parameter is unknown.
    """

    template_fields: Sequence[str] = ("job", *JOB_FIELDS, "queue_name", "backend", "target", *TEMPLATED)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **{name: "json" for name in ("job", "hang", *LIST_FIELDS, *MAPPING_FIELDS) if name != "command"},
        "function": "py",
    }
    ui_color = "#e9e4f8"
    operator_extra_links = LINKS
    function: str | None
    checkpoint_dir: str | None
    backend: str | None
    log_ranks: str | int | Sequence[int] | None
    warm_start: Asset | None
    deferrable: bool
    _sets_function: ClassVar[bool] = False
    """Whether the class sets `function` in `execute`. True only for the operator of the decorator."""

    def __init__(
        self,
        *,
        job: TrainingJob | Mapping[str, Any] | str | None = None,
        name: str | None = None,
        framework: str | Mapping[str, Any] | None = None,
        num_nodes: int | str | None = None,
        procs_per_node: int | str | None = None,
        image: str | None = None,
        script: str | None = None,
        module: str | None = None,
        command: Sequence[str] | None = None,
        function: str | None = None,
        args: Sequence[Any] | None = None,
        code: str | Mapping[str, str] | None = None,
        requirements: Sequence[str] | None = None,
        env: Mapping[str, Any] | None = None,
        resources_per_node: Mapping[str, Any] | None = None,
        storage: Sequence[Mapping[str, Any]] | None = None,
        checkpoint_dir: str | None = None,
        roles: Sequence[Mapping[str, Any]] | None = None,
        restart: Mapping[str, Any] | None = None,
        hang: str | Mapping[str, Any] | None = None,
        deadline: int | str | timedelta | None = None,
        termination_grace_period: int | str | timedelta | None = None,
        ttl: int | str | timedelta | None = None,
        scheduling: Mapping[str, Any] | None = None,
        network: Mapping[str, Any] | None = None,
        service_account: str | None = None,
        security: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        pod_template: Mapping[str, Any] | None = None,
        agent: bool | str | None = None,
        queue_name: str | None = None,
        backend: str | None = None,
        target: str | None = None,
        log_ranks: str | int | Sequence[int] | None = None,
        warm_start: Asset | None = None,
        exit_code_policy: Mapping[int | str, str] | None = None,
        callbacks: str | Sequence[str] | None = None,
        durable: bool = True,
        wait_for_completion: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        kubernetes_conn_id: str = "kubernetes_default",
        namespace: str | None = None,
        in_cluster: bool | None = None,
        cluster_context: str | None = None,
        config_file: str | None = None,
        poll_interval: float | str | timedelta = 10,
        admission_timeout: float | str | timedelta | None = None,
        startup_timeout: float | str | timedelta | None = STARTUP_TIMEOUT,
        quiet_after: float | str | timedelta | None = 3600,
        on_finish_action: str = "keep",
        on_kill_action: str = "delete",
        on_orphan: str = "keep",
        **kwargs: Any,
    ) -> None:
        arguments = locals()
        given = {name: arguments[name] for name in own_parameters(DistributedTrainOperator)}
        unknown = take_unknown(type(self), kwargs, unmapping=is_unmapping(self))
        super().__init__(**kwargs)
        if warm_start is not None and warm_start not in self.inlets:
            self.inlets = [*self.inlets, warm_start]
        for parameter, value in given.items():
            setattr(self, parameter, value)
        self.job = templatable(job)
        self.poll_interval = in_seconds(poll_interval)
        self.admission_timeout = in_seconds(admission_timeout)
        self.startup_timeout = in_seconds(startup_timeout)
        self.quiet_after = in_seconds(quiet_after)
        self.warm_start_env = {}
        self.link_fields = None
        self._local_run: LocalRun | None = None
        self._killed = False
        if is_unmapping(self):
            check_names(type(self), unknown, kwargs)
        else:
            check_values(type(self), self._arguments(), unknown, kwargs, sets_function=self._sets_function)

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Returns an operator whose `expand` adds mapped arguments. `expand` raises the errors of the constructor."""
        take_unknown(cls, known := dict(kwargs))
        return checked_partial(super().partial(**known), lambda *mapped: cls.check_arguments(kwargs, *mapped))

    @classmethod
    def check_arguments(
        cls, arguments: Mapping[str, Any], mapped: Collection[str] | None = None, instances: Instances = ()
    ) -> None:
        """Checks the arguments of a mapped task. Raises the errors of the constructor. See `check_mapped`."""
        parameters = own_parameters(DistributedTrainOperator)
        check_mapped(cls, arguments, mapped, instances, parameters, sets_function=cls._sets_function)

    def execute(self, context: Context) -> Any:
        """Runs the job, and waits until the run has finished.

        Returns:
            The result of the run, or None if rank 0 wrote no result.

        Raises:
            AirflowFailException: the job is invalid, or another try would also fail.
            AirflowSkipException: the job failed, and `exit_code_policy` maps the failure to `skip`.
            AirflowException: the job failed, or the task was killed.
        """
        from stepset_airflow.run.cluster_run import follows_cluster_run
        from stepset_airflow.run.local_run import LocalRun

        if (name := self._backend_name) == "kubernetes" or follows_cluster_run(self, context):
            return self._execute_on_cluster(context)
        self.prepare(context)
        self._local_run = LocalRun(self, context, name)
        return self._local_run.execute(lambda: self._killed)

    @property
    def _backend_name(self) -> str:
        return str(self.backend or conf.get("stepset", "backend", fallback="kubernetes"))

    def prepare(self, context: Context) -> None:
        check_rendered({**self._arguments(), "backend": self._backend_name})
        if self.warm_start is not None:
            self.warm_start_env = start_warm(context, self.warm_start)

    def on_kill(self) -> None:
        """Stops a local run. If the run is on a cluster, `execute` decides whether to stop the run.

        Airflow calls this method after SIGTERM and when execution_timeout expires.
        """
        self._killed = True
        if self._local_run is not None:
            self._local_run.stop()

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Continues the task after an event of the trigger. The result and the exceptions are those of `execute`."""
        if self.warm_start is not None:
            self.warm_start_env = resume_warm(context)
        return self._on_cluster(context, lambda run: run.resume(event))

    def _execute_on_cluster(self, context: Context) -> Any:
        def execute(run: ClusterRun) -> Any:
            attached = run.begin(lambda: self._killed)
            if attached.record.ended:
                return run.end_as_recorded(attached.record)
            if attached.workload is None:
                return run.finish(attached, run.lost_status(attached.record))
            if not self.wait_for_completion:
                run.raise_if_task_ended(attached)
                return {"run": attached.record.name, "namespace": attached.record.namespace, "uid": attached.record.uid}
            if self.deferrable:
                run.defer(attached)
            return run.finish(attached, run.wait(attached, lambda: self._killed))

        return self._on_cluster(context, execute)

    def _on_cluster(self, context: Context, action: Callable[[ClusterRun], Any]) -> Any:
        """Calls `action` with the run, and converts stepset's exceptions to Airflow's exceptions.

        If execution_timeout expires during `action`, the method ends the run.
        """
        from stepset.errors import BadInputError, InfrastructureError
        from stepset_airflow.run.cluster_run import ClusterRun

        run = ClusterRun(self, context)
        try:
            try:
                return action(run)
            except AirflowTaskTimeout as error:
                self._status = run.end_after_timeout()
                raise timeout_error(error, self._status) from None
        except BadInputError as error:
            raise AirflowFailException(str(error)) from None
        except InfrastructureError as error:
            raise AirflowException(str(error)) from error
        finally:
            run.close()

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in own_parameters(DistributedTrainOperator)}

    def job_and_base(self, labels: Mapping[str, str] | None = None) -> tuple[TrainingJob, Path]:
        """Returns the job and its base directory. Relative paths in the job are relative to this directory.

        `labels` are added to the labels of the job.

        Raises BadInputError if the job is invalid.
        """
        return job_of_task(self, labels)

    @property
    def ranks(self) -> frozenset[int] | None:
        log_ranks = self.log_ranks if self.log_ranks is not None else conf.get("stepset", "log_ranks", fallback="0")
        return ranks_to_log(log_ranks)

    def log_warm_start(self) -> None:
        if note := warm_start_note(self.warm_start_env, self.warm_start):
            self.log.info(note)

    def task_log(self, ranks: Collection[int] | None, reported: Mapping[str, Any] | None = None) -> TaskLog:
        shown = None if ranks is None else frozenset(ranks)
        return TaskLog(self.log, shown, find_callbacks(self.callbacks), reported)

    def failure(self, status: RunStatus, outcome: str) -> AirflowException:
        from stepset.watch.present.failure_report import failure_text

        self._status = status
        if outcome == "retry":
            return TrainingTaskError.of(status)
        if outcome == "skip":
            reason = skip_reason(status.failure, self.exit_code_policy)
            return AirflowSkipException(f"{reason}\n{failure_text(status, advice=False)}")
        return AirflowFailException(failure_text(status))

    def report_to_assets(self, context: Context, status: RunStatus) -> None:
        self._status = status
        report_to_assets(context, self.outlets, event_extra(status, self.checkpoint_dir), self.log.warning)
