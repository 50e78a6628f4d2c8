"""DistributedTrainOperator: a distributed training run as one Airflow task.

run/job_fields.py builds the job, logs/task_log.py writes the log, run/cluster_run.py runs the job on a cluster,
run/exit_policy.py decides how the task ends. Functions import slow modules, because DAG files must parse quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from stepset.defaults import STARTUP_TIMEOUT
from stepset_airflow.airflow_internals import checked_partial, is_unmapping
from stepset_airflow.assets import event_extra, report_to_assets, resume_warm, start_warm
from stepset_airflow.exceptions import TrainingTaskError
from stepset_airflow.hooks.cluster import TEMPLATED
from stepset_airflow.identity import attempt, epoch, free_name, run_name
from stepset_airflow.links.training import LINKS
from stepset_airflow.logs.task_log import Listeners, TaskLog, find_callbacks, ranks_to_log
from stepset_airflow.openlineage.mixin import TrainingLineage
from stepset_airflow.parsing.arguments import check_names, check_rendered, check_values
from stepset_airflow.run.exit_policy import outcome_of, skip_reason
from stepset_airflow.run.job_fields import JOB_FIELDS, job_of, templatable
from stepset_airflow.run.training_task import TrainingTask

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

    from stepset.backends.base import Backend, RunHandle, RunRequest
    from stepset.run_status import RunStatus
    from stepset.spec import TrainingJob
    from stepset_airflow.airflow_internals import OperatorPartial
    from stepset_airflow.run.cluster_run import ClusterRun

OPTIONS = (
    "job",
    "queue_name",
    "backend",
    "target",
    "log_ranks",
    "warm_start",
    "exit_code_policy",
    "callbacks",
    "durable",
    "wait_for_completion",
    "deferrable",
    "kubernetes_conn_id",
    "namespace",
    "in_cluster",
    "cluster_context",
    "config_file",
    "poll_interval",
    "admission_timeout",
    "startup_timeout",
    "quiet_after",
    "on_finish_action",
    "on_kill_action",
)
"""The operator's parameters that are not fields of the job."""


class DistributedTrainOperator(TrainingLineage, TrainingTask):
    """Runs a distributed training and waits for its end; the result that rank 0 wrote is the task's XCom.

    Parameters with the names of the job file's fields describe the job; all are templated. They replace the fields of
    `job`. Paths are relative to the DAG file; those in a job file are relative to the job file.

    Args:
        job: a TrainingJob, a mapping, or the path of a job file.
        name, framework, num_nodes, procs_per_node, image, script, module, command, function, args, code, env,
        resources_per_node, storage, checkpoint_dir, roles, restart, deadline, ttl, scheduling, network,
        service_account, security, labels, annotations, pod_template, agent: the job file's fields (docs/job-file.md).
        queue_name: shorthand for `scheduling={"queue_name": ...}`.
        backend: `kubernetes`, or `local` for processes of the worker; default: [stepset] backend, else kubernetes.
        target: kind of the run's object on a cluster: jobset (default), trainjob, statefulset, job or volcano.
        log_ranks: ranks whose lines are written to the task log: `all`, `failed`, a rank, or a list of ranks; the
            last lines of the failing rank are always written; default: [stepset] log_ranks, else 0.
        warm_start: an asset, which becomes an inlet of the task. The ranks' variable STEPSET_WARM_START is the
            checkpoint in the latest of the asset's events that has one, else in the asset's state, if there is one.
        exit_code_policy: maps exit codes of the first failing rank, or failure kinds, to `fail` (no further try),
            `retry` or `skip`; default: Rejected and Cancelled fail, everything else is retried up to `retries` times.
        callbacks: dotted paths of functions called with the run's status, as a mapping, at every change.
        durable: whether a retry continues the run of an earlier try. A local run ends with its worker; a retry starts
            a new one, from the checkpoint in `checkpoint_dir` if one exists.
        wait_for_completion: False only starts the run; not possible with `local`.
        deferrable: wait in the triggerer; default: [operators] default_deferrable. A local run always needs its
            worker.
        kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file: the cluster, as for
            KubernetesPodOperator; not used by `local`.
        poll_interval: seconds between two checks of the time limits while the task is deferred; not used by `local`.
        admission_timeout: maximum seconds that the run waits in its queue; default: no limit; not used by `local`.
        startup_timeout: maximum seconds from admission until all pods run; default: 30 minutes; not used by `local`.
        quiet_after: seconds without a line from `log_ranks` after which a note in the log reports the silence; None:
            never; not used by `local`.
        on_finish_action: what happens to the objects of a completed run: `keep`, `delete` or `delete_succeeded`; not
            used by `local`, which keeps its run directory.
        on_kill_action: what happens to the run of a killed task: `delete`, `suspend` or `keep`; a local run ends.

    Raises:
        ValueError: a value that is known when the DAG file is parsed is invalid (a parameter, or a field of the job).
        TypeError: an unknown parameter.
    """

    template_fields: Sequence[str] = ("job", *JOB_FIELDS, "queue_name", "backend", "target", *TEMPLATED)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "job": "json",
        "function": "py",
        "args": "json",
        "env": "json",
        "resources_per_node": "json",
        "storage": "json",
        "roles": "json",
        "restart": "json",
        "scheduling": "json",
        "network": "json",
        "labels": "json",
        "annotations": "json",
        "pod_template": "json",
    }
    ui_color = "#e9e4f8"
    operator_extra_links = LINKS
    _sets_function: ClassVar[bool] = False
    """Whether `execute` of a subclass sets `function`."""

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
        code: str | None = None,
        env: Mapping[str, Any] | None = None,
        resources_per_node: Mapping[str, Any] | None = None,
        storage: Sequence[Mapping[str, Any]] | None = None,
        checkpoint_dir: str | None = None,
        roles: Sequence[Mapping[str, Any]] | None = None,
        restart: Mapping[str, Any] | None = None,
        deadline: int | str | None = None,
        ttl: int | str | None = None,
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
        poll_interval: float = 10,
        admission_timeout: float | None = None,
        startup_timeout: float | None = STARTUP_TIMEOUT,
        quiet_after: float | None = 3600,
        on_finish_action: str = "keep",
        on_kill_action: str = "delete",
        **kwargs: Any,
    ) -> None:
        check_names(type(self), kwargs, kwargs)
        super().__init__(**kwargs)
        if warm_start is not None and warm_start not in self.inlets:
            self.inlets = [*self.inlets, warm_start]
        self.job = templatable(job)
        self.name = name
        self.framework = framework
        self.num_nodes = num_nodes
        self.procs_per_node = procs_per_node
        self.image = image
        self.script = script
        self.module = module
        self.command = command
        self.function = function
        self.args = args
        self.code = code
        self.env = env
        self.resources_per_node = resources_per_node
        self.storage = storage
        self.checkpoint_dir = checkpoint_dir
        self.roles = roles
        self.restart = restart
        self.deadline = deadline
        self.ttl = ttl
        self.scheduling = scheduling
        self.network = network
        self.service_account = service_account
        self.security = security
        self.labels = labels
        self.annotations = annotations
        self.pod_template = pod_template
        self.agent = agent
        self.queue_name = queue_name
        self.backend = backend
        self.target = target
        self.log_ranks = log_ranks
        self.warm_start = warm_start
        self.exit_code_policy = exit_code_policy
        self.callbacks = callbacks
        self.durable = durable
        self.wait_for_completion = wait_for_completion
        self.deferrable = deferrable
        self.kubernetes_conn_id = kubernetes_conn_id
        self.namespace = namespace
        self.in_cluster = in_cluster
        self.cluster_context = cluster_context
        self.config_file = config_file
        self.poll_interval = poll_interval
        self.admission_timeout = admission_timeout
        self.startup_timeout = startup_timeout
        self.quiet_after = quiet_after
        self.on_finish_action = on_finish_action
        self.on_kill_action = on_kill_action
        self._environment: dict[str, str] = {}
        self.link_fields = None
        self._handle: RunHandle | None = None
        self._killed = False
        self._stopped = False
        if not is_unmapping(self):
            check_values(type(self), self._arguments(), kwargs, sets_function=self._sets_function, complete=True)

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Returns the operator with constant arguments, to be mapped over others; raises like the constructor."""
        cls.check_arguments(kwargs)
        return checked_partial(super().partial(**kwargs), lambda mapped: check_names(cls, mapped, kwargs))

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Checks arguments that may be incomplete; raises like the constructor."""
        check_names(cls, arguments, arguments)
        given = {name: value for name, value in arguments.items() if name in (*OPTIONS, *JOB_FIELDS)}
        if "job" in given:
            given["job"] = templatable(given["job"])
        check_values(cls, given, arguments, sets_function=cls._sets_function, complete=False)

    def execute(self, context: Context) -> Any:
        """Runs the job to its end.

        Returns:
            The result; None if rank 0 wrote none.

        Raises:
            AirflowFailException: the job is not valid, or another try would fail too.
            AirflowSkipException: `exit_code_policy` requires it.
            AirflowException: the job failed, or the task was killed.
        """
        from stepset.backends import backend_of
        from stepset.errors import BadInputError
        from stepset.run_status import Phase
        from stepset_airflow.page.past_tries import failure_of
        from stepset_airflow.page.writer import open_page
        from stepset_airflow.run.try_reason import local_try_reason

        name = self.backend or conf.get("stepset", "backend", fallback="kubernetes")
        check_rendered({**self._arguments(), "backend": name})
        if self.warm_start is not None:
            self._environment = start_warm(context, self.warm_start)
        if name == "kubernetes":
            return self._execute_on_cluster(context)
        ti, store = context["ti"], context["task_state_store"]
        tried, cleared = attempt(ti, self.retries or 0), epoch(ti, self.retries or 0)
        if reason := local_try_reason(tried, cleared, lambda: failure_of(store)):
            self.log.info(reason)
        with open_page(self, ti, {}) as page:
            try:
                backend = backend_of(name)
                self._handle = backend.start(self._request(context, backend), Listeners(self.task_log(), page))
            except BadInputError as error:
                raise AirflowFailException(str(error)) from error
            status = self._wait(self._handle)
        if self._killed:
            # Airflow calls on_kill in its SIGTERM handler, and then execute() continues (apache/airflow#73006): without
            # this exception a task whose training was killed could succeed.
            raise AirflowException(f"run {status.name} was stopped because its task was killed")
        if status.phase is not Phase.SUCCEEDED:
            page.store_try(store)
            raise self.failure(status, outcome_of(status.failure, self.exit_code_policy))
        self.report_to_assets(context, status)
        return status.result

    def on_kill(self) -> None:
        """Ends a local run; `execute` handles a run on a cluster. Airflow calls it on SIGTERM and execution_timeout."""
        self._killed = True
        self._stop()

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Continues after the trigger's event; returns and raises like `execute`."""
        if self.warm_start is not None:
            self._environment = resume_warm(context)
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
        """Calls `action` with the run; raises Airflow's exceptions in place of stepset's."""
        from stepset.errors import BadInputError, InfrastructureError
        from stepset_airflow.run.cluster_run import ClusterRun

        run = ClusterRun(self, context)
        try:
            return action(run)
        except BadInputError as error:
            raise AirflowFailException(str(error)) from error
        except InfrastructureError as error:
            raise AirflowException(str(error)) from error
        finally:
            run.close()

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*OPTIONS, *JOB_FIELDS)}

    def _request(self, context: Context, backend: Backend) -> RunRequest:
        from stepset.backends.base import RunRequest
        from stepset.sources import read_sources

        job, base_dir = self.job_and_base()
        ti = context["ti"]
        tried = attempt(ti, self.retries or 0)
        return RunRequest(job, read_sources(job, base_dir), name=free_name(run_name(ti), backend), attempt=tried)

    def job_and_base(self, labels: Mapping[str, str] | None = None) -> tuple[TrainingJob, Path]:
        """Returns the job of the rendered fields and the directory its paths are relative to; raises like `job_of`."""
        fields = {field: getattr(self, field) for field in JOB_FIELDS}
        return job_of(self.job, fields, self.queue_name, Path(self.dag.folder), self._environment, labels)

    @property
    def ranks(self) -> frozenset[int] | None:
        """The ranks whose lines the task log shows; None: all."""
        log_ranks = self.log_ranks if self.log_ranks is not None else conf.get("stepset", "log_ranks", fallback="0")
        return ranks_to_log(log_ranks)

    def task_log(self, reported: Mapping[str, Any] | None = None) -> TaskLog:
        """Returns a listener that writes a run to this task's log.

        `reported` is `TaskLog.reported` of another process, which wrote to the log before.
        """
        return TaskLog(self.log, self.ranks, find_callbacks(self.callbacks), reported)

    def _wait(self, handle: RunHandle) -> RunStatus:
        if self._killed:  # before the run was started
            self._stop()
        try:
            return handle.wait()
        except BaseException:  # execution_timeout, or the worker shuts down: no process may remain
            self._stop()
            handle.wait()
            raise

    def _stop(self) -> None:
        # Only once: a second request would end the run before it can write a checkpoint.
        if self._handle is not None and not self._stopped:
            self._stopped = True
            self._handle.cancel()

    def failure(self, status: RunStatus, outcome: str) -> AirflowException:
        """Returns the exception that ends the task; the outcome is `fail`, `retry` or `skip`."""
        from stepset.watch.present.failure_report import failure_text

        self._status = status
        if outcome == "retry":
            return TrainingTaskError.of(status)
        if outcome == "skip":
            return AirflowSkipException(f"{skip_reason(status.failure, self.exit_code_policy)}\n{failure_text(status)}")
        return AirflowFailException(failure_text(status))

    def report_to_assets(self, context: Context, status: RunStatus) -> None:
        """Adds the result to the events of the task's outlets, for the DAGs that they schedule."""
        self._status = status
        report_to_assets(context, self.outlets, event_extra(status, self.checkpoint_dir))
