"""All uses of Airflow's private interfaces in Python, with the file and version in which each was read.

The public interfaces are airflow.sdk with its modules `exceptions`, `types` and `bases.decorator`,
airflow.triggers.base, airflow.plugins_manager, and the hooks and base classes of providers
(https://airflow.apache.org/docs/apache-airflow/stable/public-airflow-interface.html). Everything else may change with
any version of Airflow, so pyproject.toml limits the version, and tests/airflow/test_airflow_internals.py has a test for
each entry of this module that fails when Airflow changes it.

Read in apache-airflow 3.3.2 (task SDK 1.3.2) and apache-airflow 3.4.0b2 (task SDK 1.4.0b2), with
apache-airflow-providers-cncf-kubernetes 10.25.0 and apache-airflow-providers-openlineage 2.20.3. Airflow's modules are
imported when they are used: some take seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
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
    from airflow.sdk.types import RuntimeTaskInstanceProtocol
    from kubernetes.client import V1Pod
    from openlineage.client.event_v2 import Dataset

MODULES = {
    # The API server's checks of a user's permissions, for a plugin's FastAPI application.
    "get_auth_manager": "airflow.api_fastapi.app",
    "DagAccessEntity": "airflow.api_fastapi.auth.managers.models.resource_details",
    "DagDetails": "airflow.api_fastapi.auth.managers.models.resource_details",
    "DagModel": "airflow.models.dag",
    "SessionDep": "airflow.api_fastapi.common.db.common",
    "GetUserDep": "airflow.api_fastapi.core_api.security",
    "get_user": "airflow.api_fastapi.core_api.security",
    "requires_access_dag": "airflow.api_fastapi.core_api.security",
    # The tables from which the API server reads the page.
    "TaskInstance": "airflow.models.taskinstance",
    "TaskStateStoreModel": "airflow.models.task_state_store",
    "XComModel": "airflow.models.xcom",
    # Airflow 3.4: the map index that users see; the column contains the iteration of a task in a loop.
    "public_map_index_expression": "airflow.models.task_coordinates",
}
"""Names that other modules import from this one, and Airflow's modules that define them."""

USER_ACTION_CANCEL_MESSAGE = "__airflow_user_action__"
"""The message with which a triggerer cancels a trigger when a user has acted on its task.

jobs/triggerer_job_runner.py, _USER_ACTION_CANCEL_MSG.
"""

ON_KILL_TIMEOUT = 30.0
"""Default of `[triggerer] on_kill_timeout`: seconds that a triggerer waits for `on_kill`.

jobs/triggerer_job_runner.py, _ON_CANCEL_TIMEOUT.
"""

SECRET_MASK = "***"
"""What Airflow writes in place of a secret; _shared/secrets_masker/secrets_masker.py of the task SDK, redact."""

_FORBIDDEN = 403

LOG_TIME, LOG_TASK_INSTANCE, LOG_LOGGER, LOG_TEXT = "timestamp", "ti_id", "logger", "event"
"""Keys of a JSON line of a triggerer's log file: the time in ISO format, the task instance's id, the logger, the text.

jobs/triggerer_job_runner.py, TriggerLoggingFactory; log.py of the task SDK, logging_processors.
"""


def has_regions() -> bool:
    """Returns whether this Airflow stores regions: from 3.4 on. models/taskinstance.py."""
    from airflow.models.taskinstance import TaskInstance

    return hasattr(TaskInstance, "region_id")


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True)
class Region:
    """The place of a task instance that Airflow 3.4 created at run time: in a loop, or in a mapped task's expansion.

    models/dynamic_region.py: `index` is the loop's iteration, counted from 0, or the map index. After a user has
    cleared the decision to continue the loop, the iterations from the second on are in another region than before.
    """

    id: str
    index: int


def region_of(ti: Any) -> Region | None:
    """Returns the region of a task instance; None if it has none, as all task instances in Airflow 3.3.

    Airflow passes the UUID 0 or None if there is none: api/datamodels/_generated.py and execution_time/task_runner.py
    of the task SDK, TaskInstance and RuntimeTaskInstance.
    """
    found, index = getattr(ti, "region_id", None), getattr(ti, "region_index", None)
    return None if found in (None, UUID(int=0)) or index is None else Region(str(found), int(index))


def loop_region_of(ti: Any) -> Region | None:
    """Returns the region of a task instance in a loop; None if it is in no loop. `ti` is that of a task's context.

    A mapped task in a loop has a region in each iteration. execution_time/task_runner.py of the task SDK:
    `_ti_context_from_server.loop` is None outside loops.
    """
    if (region := region_of(ti)) is None or ti.map_index in (None, -1):
        return region
    return region if getattr(getattr(ti, "_ti_context_from_server", None), "loop", None) is not None else None


def finished_state(ti: Any, region: Region) -> str | None:
    """Returns the final state of a task instance that has a region; None if it has not ended, or does not exist.

    Blocks until Airflow answers, and raises the request's errors. Only a worker can call it.
    execution_time/task_runner.py of the task SDK, RuntimeTaskInstance.get_task_breadcrumbs.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    for found in RuntimeTaskInstance.get_task_breadcrumbs(dag_id=ti.dag_id, run_id=ti.run_id):
        where = str(found.get("region_id")), found.get("region_index")
        if found["task_id"] == ti.task_id and where == (region.id, region.index):
            return str(found["state"])
    return None


def is_latest_try(ti: Any) -> bool:
    """Returns whether the try of a trigger's task instance is still the current one.

    Returns False after a user has cleared or deleted the task instance. Blocks until Airflow answers, and raises other
    errors of the request. Only a triggerer of Airflow 3.4 can call it, in the context of the trigger.
    api_fastapi/execution_api/routes/xcoms.py, _resolve_trigger_token: other tries must not read XComs.
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
    """Returns run id -> task id -> state of a task instance; empty if it does not exist.

    The state of a task in a loop is that of its latest iteration. Blocks until Airflow answers, and raises the
    request's errors. execution_time/task_runner.py of the task SDK, RuntimeTaskInstance.get_task_states: used by
    Airflow's sensors, not documented.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states: Mapping[str, Mapping[str, Any]] = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=map_index
    )
    return states


async def send_to_supervisor(message: str, **fields: Any) -> Any:
    """Sends a message such as GetXCom to the supervisor of this process, and returns the answer.

    XCom messages bypass the deployment's XCom backend, which BaseXCom's methods use. execution_time/comms.py and
    execution_time/task_runner.py of the task SDK, SUPERVISOR_COMMS.
    """
    from airflow.sdk.execution_time import comms, task_runner

    return await task_runner.SUPERVISOR_COMMS.asend(getattr(comms, message)(**fields))


def is_supervisor_async() -> bool:
    """Returns whether this process can query Airflow without blocking: True in a triggerer, False in `dag.test()`.

    execution_time/supervisor.py of the task SDK: InProcessSupervisorComms has no `asend`.
    """
    from airflow.sdk.execution_time import task_runner

    return hasattr(task_runner.SUPERVISOR_COMMS, "asend")


def redact(value: Any) -> Any:
    """Returns `value` with Airflow's secrets masked (sdk.py of the provider common.compat 1.23.0)."""
    from airflow.providers.common.compat.sdk import redact

    return redact(value)


def trigger_log_files(ti: Any) -> list[Path]:
    """Returns the files, beside a task's log, to which triggerers wrote the lines of the task's triggers.

    A triggerer writes to `attempt=1.log.trigger.7.log`, 7 being its job's id (jobs/triggerer_job_runner.py,
    TriggerLoggingFactory). Airflow shows the file if triggerers and API server share a directory, even after the
    triggerer was killed (utils/log/file_task_handler.py). utils/helpers.py renders the path.
    """
    from airflow.sdk import conf
    from airflow.utils.helpers import log_filename_template_renderer

    path = Path(conf.get("logging", "base_log_folder"), log_filename_template_renderer()(ti=ti))
    start = f"{path.name}.trigger."
    return [file for file in path.parent.iterdir() if file.name.startswith(start)] if path.parent.is_dir() else []


def log_stream() -> Any:
    """Returns the binary stream to which this process logs, which is a socket in a triggerer; None if unknown.

    _shared/logging/structlog.py of the task SDK, LoggerFactory; execution_time/supervisor.py makes it a socket.
    """
    import structlog

    return getattr(structlog.get_config()["logger_factory"], "io", None)


def try_cleared_at(max_tries: int, retries: int) -> int:
    """Returns the try number at which a task instance was last cleared; 0 if it never was.

    Clearing sets max_tries to the try number plus the task's retries: models/taskinstance.py, clear_task_instances.
    """
    return max(0, max_tries - retries)


def plugin_tab_path(
    dag_id: str, run_id: str, task_id: str, map_index: int, route: str, region: Region | None = None
) -> str:
    """Returns the path and query of a plugin's tab at a task instance in Airflow's UI.

    The UI's routes (ui/src/router.tsx of airflow-core). The query of a task instance in a region names the region; the
    UI does not pass it to the plugin's page, which reads it from the UI's address.

    Args:
        map_index: -1 if the task is not mapped.
        route: the `url_route` of the plugin's view.
    """
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    dag, run, task = (quote(part, safe="") for part in (dag_id, run_id, task_id))
    query = "" if region is None else "?" + urlencode({"region_id": region.id, "region_index": region.index})
    return f"/dags/{dag}/runs/{run}/tasks/{task}{mapped}/plugin/{route}{query}"


def call_pod_mutation_hook(pod: V1Pod) -> None:
    """Calls the deployment's `pod_mutation_hook`, which may change the pod or raise (airflow/settings.py)."""
    from airflow.settings import pod_mutation_hook

    pod_mutation_hook(pod)  # type: ignore[no-untyped-call]  # Airflow's


def pod_of(manifest: Mapping[str, Any]) -> V1Pod:
    """Converts a pod's manifest to a V1Pod (pod_generator.py of cncf.kubernetes, PodGenerator)."""
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

    return PodGenerator.deserialize_model_dict(dict(manifest))


def safe_label_value(text: str) -> str:
    """Converts `text` to a valid label value as KubernetesPodOperator does (pod_generator.py of cncf.kubernetes)."""
    from airflow.providers.cncf.kubernetes.pod_generator import make_safe_label_value

    return make_safe_label_value(text)


def set_connection_extras(hook: KubernetesHook, extras: Mapping[str, Any]) -> None:
    """Sets the extras of a hook's connection, so that it does not query Airflow for them.

    hooks/kubernetes.py of cncf.kubernetes: `conn_extras` is a cached property.
    """
    hook.__dict__["conn_extras"] = dict(extras)


def openlineage_dataset(entity: Any) -> Dataset | None:
    """Converts an inlet or outlet to an OpenLineage dataset; returns None if that is not possible.

    extractors/manager.py of the OpenLineage provider, ExtractorManager.
    """
    from airflow.providers.openlineage.extractors.manager import ExtractorManager

    return ExtractorManager.convert_to_ol_dataset(entity)
