"""Runs the job of a task as processes of the worker.

LocalRun starts the run and waits until it has finished. If the task is killed, LocalRun stops the run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout

from stepset_airflow.airflow_internals import mask_secret
from stepset_airflow.exceptions import timeout_error
from stepset_airflow.identity import attempt, earlier_run, epoch, free_name, labels_of, run_name
from stepset_airflow.logs.task_log import Listeners
from stepset_airflow.run.exit_policy import outcome_of
from stepset_airflow.run.job_fields import job_of_task
from stepset_airflow.run.task_result import task_result
from stepset_airflow.run.termination import timeout_reason
from stepset_airflow.run.training_task import TrainingTask
from stepset_airflow.transferable import masked_status

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.backends.base import Backend, RunHandle, RunRequest
    from stepset.run_status import RunStatus

_KILLED = "its task was killed, and its ranks received SIGTERM."


class LocalRun:
    """The run of one task instance.

    Args:
        task: the task. Airflow has rendered its fields.
        context: the context of the task.
        backend: the name of a backend for `stepset.backends.backend_of`, except `kubernetes`.
    """

    def __init__(self, task: TrainingTask, context: Context, backend: str) -> None:
        self._task, self._context, self._backend = task, context, backend
        self._handle: RunHandle | None = None
        self._stopped = False

    def execute(self, killed: Callable[[], bool]) -> Any:
        """Runs the job, and waits until the run has finished.

        The result and the exceptions are those of `DistributedTrainOperator.execute`.

        Args:
            killed: a function that returns whether Airflow has called the operator's `on_kill`. Airflow may call
                `on_kill` before the run has started.
        """
        try:
            return self._execute(killed)
        except AirflowTaskTimeout:
            if self._handle is None:
                self._task.log.error(f"{timeout_reason(self._task)} before the run was started")
            raise

    def _execute(self, killed: Callable[[], bool]) -> Any:
        from stepset.backends import backend_of
        from stepset.errors import BadInputError, RunStoppedError
        from stepset.run_status import Phase
        from stepset_airflow.page.writer import open_page
        from stepset_airflow.run.parameters import parameters_of
        from stepset_airflow.run.try_reason import local_try_reason

        task, ti, store = self._task, self._context["ti"], self._context["task_state_store"]
        tried, cleared = attempt(ti, task.retries or 0), epoch(ti, task.retries or 0)
        if reason := local_try_reason(tried, cleared, self._earlier_failure):
            task.log.info(reason)
        with open_page(task, ti, {"parameters": parameters_of(task)}) as page:
            try:
                backend = backend_of(self._backend, interface="airflow")
                request = self._request(backend, tried, killed)
                self._handle = backend.start(request, Listeners(task.task_log(task.ranks), page))
            except BadInputError as error:
                raise AirflowFailException(str(error)) from None
            except RunStoppedError:
                raise AirflowException("the run was stopped because its task was killed") from None
            try:
                status = masked_status(self._wait(self._handle, killed))
            except AirflowTaskTimeout as error:
                page.store_try(store)
                raise timeout_error(error, page.status) from None
        if killed():
            # Airflow calls on_kill in its SIGTERM handler, and then execute() continues (apache/airflow#73006). Without
            # this exception, a task could succeed although its run was killed.
            raise AirflowException(f"run {status.name} was stopped because its task was killed")
        if status.phase is not Phase.SUCCEEDED:
            page.store_try(store)
            raise task.failure(status, outcome_of(status.failure, task.exit_code_policy))
        return task_result(task, self._context, status)

    def _earlier_failure(self) -> str:
        """Returns how the run of the previous try ended, or "" if this is unknown.

        Airflow may have killed the previous try before it stored this. Then the files of the run contain the reason.
        """
        from stepset.backends import backend_of
        from stepset.errors import StepsetError
        from stepset.watch.present.sentences import end_sentence
        from stepset_airflow.page.past_tries import failure_of

        store = self._context["task_state_store"]
        with suppress(StepsetError):
            earlier = earlier_run(self._context["ti"], backend_of(self._backend, interface="airflow"))
            if earlier is not None and earlier.failure is not None:
                return failure_of(store, earlier.name) or " ".join(end_sentence(masked_status(earlier)).split())
        return failure_of(store)

    def stop(self, reason: str = _KILLED) -> None:
        """Stops the run if the run was started. Each rank receives SIGTERM, and later SIGKILL.

        `reason` is a part of the message of the run's failure. The default states no time, because the process may be
        killed before the grace period of the ranks has passed. A second call is ignored, because a second call would
        kill the ranks before they can write a checkpoint.
        """
        if self._handle is not None and not self._stopped:
            self._stopped = True
            self._handle.cancel(reason=reason)

    def _request(self, backend: Backend, tried: int, killed: Callable[[], bool]) -> RunRequest:
        from stepset.backends.base import RunRequest
        from stepset.sources import read_sources

        job, base_dir = job_of_task(self._task, labels_of(self._context["ti"]))
        name = free_name(run_name(self._context["ti"]), backend)
        self._task.log_warm_start()
        sources = read_sources(job, base_dir)
        return RunRequest(job, sources, name=name, attempt=tried, stopping=killed, hide=mask_secret)

    def _wait(self, handle: RunHandle, killed: Callable[[], bool]) -> RunStatus:
        if killed():  # on_kill was called before `self._handle` was set
            self.stop()
        try:
            return handle.wait()
        except BaseException as error:  # if execution_timeout expires or the worker shuts down, all processes must stop
            self.stop(timeout_reason(self._task) if isinstance(error, AirflowTaskTimeout) else _KILLED)
            handle.wait()
            raise
