"""Wraps every private Python interface of Airflow that this package uses.

The public interfaces are airflow.sdk with its modules `exceptions`, `types` and `bases.decorator`,
airflow.triggers.base, airflow.plugins_manager, and the hooks and base classes of providers
(https://airflow.apache.org/docs/apache-airflow/stable/public-airflow-interface.html). All other interfaces may change
in any version of Airflow. Therefore pyproject.toml limits the version of Airflow. For each interface in this module, a
docstring states the file in Airflow that defines the interface, and tests/airflow/test_airflow_internals.py contains a
test that fails if Airflow changes the interface.

This module is based on the source code of apache-airflow 3.3.2 (task SDK 1.3.2) and apache-airflow 3.4.0b2 (task SDK
1.4.0b2), of apache-airflow-providers-cncf-kubernetes 10.25.0, and of apache-airflow-providers-openlineage 2.20.3.
Airflow's modules are imported inside functions, because some of these imports take seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

if TYPE_CHECKING:
    from airflow.api_fastapi.app import get_auth_manager as get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity as DagAccessEntity
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails as DagDetails
    from airflow.api_fastapi.common.db.common import SessionDep as SessionDep
    from airflow.api_fastapi.core_api.security import GetUserDep as GetUserDep
    from airflow.api_fastapi.core_api.security import get_user as get_user
    from airflow.api_fastapi.core_api.security import requires_access_dag as requires_access_dag
    from airflow.models.dag import DagModel as DagModel
    from airflow.models.task_state_store import TaskStateStoreModel as TaskStateStoreModel
    from airflow.models.taskinstance import TaskInstance as TaskInstance
    from airflow.models.xcom import XComModel as XComModel
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
    from airflow.sdk import DAG, BaseOperator, TaskGroup, XComArg
    from airflow.sdk.bases.decorator import TaskDecorator
    from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS as KNOWN_CONTEXT_KEYS
    from airflow.sdk.definitions.mappedoperator import MappedOperator
    from airflow.sdk.definitions.mappedoperator import OperatorPartial as OperatorPartial
    from airflow.sdk.types import RuntimeTaskInstanceProtocol
    from kubernetes.client import V1Pod
    from openlineage.client.event_v2 import Dataset

MODULES = {
    # Functions of the API server that check a user's permissions. A plugin's FastAPI application can call them.
    "get_auth_manager": "airflow.api_fastapi.app",
    "DagAccessEntity": "airflow.api_fastapi.auth.managers.models.resource_details",
    "DagDetails": "airflow.api_fastapi.auth.managers.models.resource_details",
    "DagModel": "airflow.models.dag",
    "SessionDep": "airflow.api_fastapi.common.db.common",
    "GetUserDep": "airflow.api_fastapi.core_api.security",
    "get_user": "airflow.api_fastapi.core_api.security",
    "requires_access_dag": "airflow.api_fastapi.core_api.security",
    # The database tables from which the API server reads the data of the page "Training".
    "TaskInstance": "airflow.models.taskinstance",
    "TaskStateStoreModel": "airflow.models.task_state_store",
    "XComModel": "airflow.models.xcom",
    # The names that a decorator of Airflow treats as keys of a task's context. In loops, `loop` is also a key.
    "KNOWN_CONTEXT_KEYS": "airflow.sdk.definitions.context",
    # Airflow 3.4: the map index in the UI. In a loop, the column `map_index` of a task instance contains the iteration.
    "public_map_index_expression": "airflow.models.task_coordinates",
}
"""Maps names to the modules of Airflow that define these names. Other modules import the names from this module."""

USER_ACTION_CANCEL_MESSAGE = "__airflow_user_action__"
"""A user's action cancels a trigger with this message (jobs/triggerer_job_runner.py, _USER_ACTION_CANCEL_MSG)."""

ON_KILL_TIMEOUT = 30.0
"""The number of seconds that a triggerer waits for `on_kill`. This is the default of `[triggerer] on_kill_timeout`.

jobs/triggerer_job_runner.py, _ON_CANCEL_TIMEOUT.
"""

SECRET_MASK = "***"
"""Airflow replaces a secret with this string (_shared/secrets_masker/secrets_masker.py of the task SDK, redact)."""

_FORBIDDEN = 403

LOG_TIME, LOG_TASK_INSTANCE, LOG_LOGGER, LOG_TEXT = "timestamp", "ti_id", "logger", "event"
"""The keys of a JSON line in a triggerer's log file.

The values are the time in ISO format, the id of the task instance, the name of the logger, and the message.

jobs/triggerer_job_runner.py, TriggerLoggingFactory; log.py of the task SDK, logging_processors.
"""


def current_dag() -> DAG | None:
    """Returns the DAG of the enclosing `with` statement (definitions/_internal/contextmanager.py of the task SDK)."""
    from airflow.sdk.definitions._internal.contextmanager import DagContext

    return DagContext.get_current()


def parsed_file() -> Path | None:
    """Returns the DAG file that Airflow is parsing, or None if Airflow is not parsing a DAG file.

    If the DAG file imports a module and the module calls this function, the result is still the DAG file.

    The function reads an attribute of DagContext (definitions/_internal/contextmanager.py of the task SDK). Airflow 3.3
    sets this attribute in dag_processing/importers/python_importer.py. Airflow 3.4 sets the attribute in
    importers/python_importer.py of the task SDK.
    """
    from airflow.sdk.definitions._internal.contextmanager import DagContext

    module = sys.modules.get(DagContext.current_autoregister_module_name or "")
    file = getattr(module, "__file__", None)
    return Path(file) if file else None


def current_task_group(dag: DAG) -> TaskGroup | None:
    """Returns the task group of the enclosing `with` statement, or the DAG's root group outside of such a statement.

    The interface is TaskGroupContext in definitions/_internal/contextmanager.py of the task SDK.
    """
    from airflow.sdk.definitions._internal.contextmanager import TaskGroupContext

    return TaskGroupContext.get_current(dag)


def is_unmapping(task: BaseOperator) -> bool:
    """Returns whether Airflow is creating `task` from a mapped operator. The constructor of `task` calls this function.

    The interface is BaseOperatorMeta._apply_defaults in bases/operator.py of the task SDK.
    """
    return bool(getattr(task, "_BaseOperator__from_mapped", False))


def checked_partial(
    partial: OperatorPartial, check: Callable[[Mapping[str, Any] | None, list[tuple[int, Mapping[str, Any]]]], None]
) -> OperatorPartial:
    """Returns a copy of `partial` whose `expand` and `expand_kwargs` call `check`.

    `expand` calls `check` with the mapped arguments and a list that contains an index and a mapping for each known
    value. `expand_kwargs` calls `check` with None and a list of the known elements with their indexes. The interface is
    OperatorPartial in the task SDK's definitions/mappedoperator.py. `_expand_called` suppresses a warning about a
    missing `expand`.
    """
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

    class CheckedPartial(OperatorPartial):
        def expand(self, **mapped: Any) -> MappedOperator:
            self._expand_called = True
            lists = {name: each for name, each in mapped.items() if isinstance(each, (list, tuple))}
            check(mapped, [(index, {name: value}) for name in lists for index, value in enumerate(lists[name])])
            return super().expand(**mapped)

        def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> MappedOperator:
            self._expand_called = True
            elements = enumerate(kwargs if isinstance(kwargs, (list, tuple)) else ())
            check(None, [(index, each) for index, each in elements if isinstance(each, Mapping)])
            return super().expand_kwargs(kwargs, strict=strict)

    partial._expand_called = True
    return CheckedPartial(operator_class=partial.operator_class, kwargs=partial.kwargs, params=partial.params)


def checked_decorator(decorator: TaskDecorator, check: Callable[[Mapping[str, Any]], None]) -> TaskDecorator:
    """Returns a copy of `decorator` whose `expand` and `expand_kwargs` call `check` with the operator's arguments.

    The interface is _TaskDecorator in bases/decorator.py of the task SDK.
    """
    from airflow.sdk.bases.decorator import _TaskDecorator

    class CheckedDecorator(_TaskDecorator[Any, Any, Any]):
        def _expand(self, expand_input: Any, *, strict: bool) -> XComArg:
            check(self.kwargs)
            return super()._expand(expand_input, strict=strict)

    assert isinstance(decorator, _TaskDecorator)
    names = ("function", "operator_class", "multiple_outputs", "kwargs", "decorator_name")
    return cast("TaskDecorator", CheckedDecorator(**{name: getattr(decorator, name) for name in names}))


def has_regions() -> bool:
    """Returns whether this version of Airflow stores regions. Airflow 3.4 stores regions (models/taskinstance.py)."""
    from airflow.models.taskinstance import TaskInstance

    return hasattr(TaskInstance, "region_id")


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True)
class Region:
    """Identifies an iteration of a loop or an instance of a mapped task in Airflow 3.4.

    The file models/dynamic_region.py defines regions. In a loop, `index` is the number of the iteration, counted from
    0. In a mapped task, `index` is the map index. If a user clears the task that decides whether the loop continues,
    Airflow creates later iterations again. The new iterations are in another region.
    """

    id: str
    index: int


def region_of(ti: Any) -> Region | None:
    """Returns the region of a task instance, or None without a region. In Airflow 3.3 no task instance has a region.

    If a task instance has no region, its attribute `region_id` is the UUID 0 or None (TaskInstance in
    api/datamodels/_generated.py and RuntimeTaskInstance in execution_time/task_runner.py of the task SDK).
    """
    found, index = getattr(ti, "region_id", None), getattr(ti, "region_index", None)
    return None if found in (None, UUID(int=0)) or index is None else Region(str(found), int(index))


def loop_region_of(ti: Any) -> Region | None:
    """Returns the region of a task instance that is in a loop. Returns None if the task instance is in no loop.

    `ti` is the task instance in a task's context. A mapped task in a loop has a region in each iteration. Outside of
    loops, `_ti_context_from_server.loop` is None (execution_time/task_runner.py of the task SDK).
    """
    if (region := region_of(ti)) is None or ti.map_index in (None, -1):
        return region
    return region if getattr(getattr(ti, "_ti_context_from_server", None), "loop", None) is not None else None


def finished_state(ti: Any, region: Region) -> str | None:
    """Returns the final state of a task instance that has a region.

    Returns None if the task instance has not finished or does not exist. The function blocks until Airflow
    answers, and raises the errors of the request. Only a worker can call this function.
    The interface is RuntimeTaskInstance.get_task_breadcrumbs in execution_time/task_runner.py of the task SDK.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    for found in RuntimeTaskInstance.get_task_breadcrumbs(dag_id=ti.dag_id, run_id=ti.run_id):
        where = str(found.get("region_id")), found.get("region_index")
        if found["task_id"] == ti.task_id and where == (region.id, region.index):
            return str(found["state"])
    return None


def is_latest_try(ti: Any) -> bool:
    """Returns whether the current trigger belongs to the latest try of the task instance.

    Returns False if a user has cleared or deleted the task instance. The function blocks until Airflow answers, and
    raises the errors of the request. Only a trigger in Airflow 3.4 can call this function.

    The function requests an XCom. If the try of the trigger is not the latest try, Airflow rejects the request with
    status 403 (api_fastapi/execution_api/routes/xcoms.py, _resolve_trigger_token).
    """
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time import comms, task_runner

    index = -1 if ti.map_index is None else ti.map_index
    key = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": index}
    try:
        task_runner.SUPERVISOR_COMMS.send(comms.GetXCom(key="return_value", **key))
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") != _FORBIDDEN:
            raise
        return False
    return True


def task_states(ti: RuntimeTaskInstanceProtocol, map_index: int) -> Mapping[str, Mapping[str, Any]]:
    """Returns the state of a task instance as a mapping: run id -> task id -> state.

    If the task instance does not exist, the mapping is empty. If the task is in a loop, the mapping contains the state
    of the latest iteration. The function blocks until Airflow answers, and raises the errors of the request. The
    interface is RuntimeTaskInstance.get_task_states in execution_time/task_runner.py of the task SDK. Airflow's sensors
    call this method, but the method is not documented.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states: Mapping[str, Mapping[str, Any]] = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=map_index
    )
    return states


async def send_to_supervisor(message: str, **fields: Any) -> Any:
    """Sends a message such as GetXCom to the supervisor of this process, and returns the answer.

    Unlike the methods of BaseXCom, messages about XComs bypass the XCom backend of the deployment.
    The interface is SUPERVISOR_COMMS in execution_time/comms.py and execution_time/task_runner.py of the task SDK.
    """
    from airflow.sdk.execution_time import comms, task_runner

    return await task_runner.SUPERVISOR_COMMS.asend(getattr(comms, message)(**fields))


def is_supervisor_async() -> bool:
    """Returns whether this process can query Airflow without blocking. The result is False in `dag.test()`.

    execution_time/supervisor.py of the task SDK: InProcessSupervisorComms has no `asend`.
    """
    from airflow.sdk.execution_time import task_runner

    return hasattr(task_runner.SUPERVISOR_COMMS, "asend")


def redact(value: Any) -> Any:
    """Returns a copy of `value` with masked secrets (sdk.py of the provider common.compat 1.23.0)."""
    from airflow.providers.common.compat.sdk import redact

    return redact(value)


def mask_secret(value: str) -> None:
    """Masks a value, and each of its lines, in the log of the task and in what `redact` returns.

    Source: sdk.py of the provider common.compat 1.23.0.
    """
    from airflow.providers.common.compat.sdk import mask_secret

    for text in {value.strip(), *map(str.strip, value.splitlines())}:
        mask_secret(text)


def trigger_log_files(ti: Any) -> list[Path]:
    """Returns the log files of a task's triggers.

    Triggerers write these files to the directory of the task's log. A triggerer whose job has the id 7 writes to
    `attempt=1.log.trigger.7.log` (jobs/triggerer_job_runner.py, TriggerLoggingFactory). If the triggerers and the API
    server share the directory, Airflow shows this file even after the triggerer was killed
    (utils/log/file_task_handler.py). The path of the task's log is rendered by utils/helpers.py.
    """
    from airflow.sdk import conf
    from airflow.utils.helpers import log_filename_template_renderer

    path = Path(conf.get("logging", "base_log_folder"), log_filename_template_renderer()(ti=ti))
    start = f"{path.name}.trigger."
    return [file for file in path.parent.iterdir() if file.name.startswith(start)] if path.parent.is_dir() else []


def log_stream() -> Any:
    """Returns the binary stream to which this process logs, or None if the stream is unknown.

    In a triggerer, the stream is a socket. execution_time/supervisor.py of the task SDK creates the socket.
    The interface is LoggerFactory in _shared/logging/structlog.py of the task SDK.
    """
    import structlog

    return getattr(structlog.get_config()["logger_factory"], "io", None)


def try_cleared_at(max_tries: int, retries: int) -> int:
    """Returns the try number at which a task instance was last cleared. Returns 0 if the task was never cleared.

    When a user clears a task instance, Airflow sets max_tries to the sum of the try number and the task's retries
    (models/taskinstance.py, clear_task_instances).
    """
    return max(0, max_tries - retries)


def call_pod_mutation_hook(pod: V1Pod) -> None:
    """Calls the deployment's `pod_mutation_hook`. The hook may change the pod or raise (airflow/settings.py)."""
    from airflow.settings import pod_mutation_hook

    pod_mutation_hook(pod)  # type: ignore[no-untyped-call]  # Airflow's


def pod_of(manifest: Mapping[str, Any]) -> V1Pod:
    """Converts a pod's manifest to a V1Pod (pod_generator.py of cncf.kubernetes, PodGenerator)."""
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

    return PodGenerator.deserialize_model_dict(dict(manifest))


def set_connection_extras(hook: KubernetesHook, extras: Mapping[str, Any]) -> None:
    """Sets the extras of a hook's connection. After this call, the hook does not query Airflow for the extras.

    hooks/kubernetes.py of cncf.kubernetes: `conn_extras` is a cached property.
    """
    hook.__dict__["conn_extras"] = dict(extras)


def openlineage_dataset(entity: Any) -> Dataset | None:
    """Converts an inlet or outlet to an OpenLineage dataset. Returns None if Airflow cannot convert the object.

    The interface is ExtractorManager in extractors/manager.py of the OpenLineage provider.
    """
    from airflow.providers.openlineage.extractors.manager import ExtractorManager

    return ExtractorManager.convert_to_ol_dataset(entity)
