"""All uses of Airflow's private interfaces in Python, with the file and version in which each was read.

Public are airflow.sdk with its modules `exceptions`, `types` and `bases.decorator`, airflow.triggers.base,
airflow.plugins_manager, and the hooks and base classes of providers
(https://airflow.apache.org/docs/apache-airflow/stable/public-airflow-interface.html). Everything else may change with
any version of Airflow, so pyproject.toml limits the version, and tests/airflow/test_airflow_internals.py has a test for
each entry of this module that fails when Airflow changes it.

Read in apache-airflow 3.3.2 (task SDK 1.3.2), apache-airflow-providers-cncf-kubernetes 10.25.0 and
apache-airflow-providers-openlineage 2.20.3. Airflow's modules are imported when they are used: some take seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from airflow.api_fastapi.app import get_auth_manager as get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity as DagAccessEntity
    from airflow.api_fastapi.common.db.common import SessionDep as SessionDep
    from airflow.api_fastapi.core_api.security import GetUserDep as GetUserDep
    from airflow.api_fastapi.core_api.security import get_user as get_user
    from airflow.api_fastapi.core_api.security import requires_access_dag as requires_access_dag
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
    "SessionDep": "airflow.api_fastapi.common.db.common",
    "GetUserDep": "airflow.api_fastapi.core_api.security",
    "get_user": "airflow.api_fastapi.core_api.security",
    "requires_access_dag": "airflow.api_fastapi.core_api.security",
    # The tables from which the API server reads the page.
    "TaskInstance": "airflow.models.taskinstance",
    "TaskStateStoreModel": "airflow.models.task_state_store",
    "XComModel": "airflow.models.xcom",
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

LOG_TIME, LOG_TASK_INSTANCE, LOG_LOGGER, LOG_TEXT = "timestamp", "ti_id", "logger", "event"
"""Keys of a line of a triggerer's log file, which is JSON: time in ISO format, the task instance's id, logger, text.

jobs/triggerer_job_runner.py, TriggerLoggingFactory; log.py of the task SDK, logging_processors.
"""


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def task_states(ti: RuntimeTaskInstanceProtocol, map_index: int) -> Mapping[str, Mapping[str, Any]]:
    """Returns run id -> task id -> state of a task instance; empty if it does not exist.

    Blocks until Airflow answers, and raises the request's errors. execution_time/task_runner.py of the task SDK,
    RuntimeTaskInstance.get_task_states: used by Airflow's sensors, not documented.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states: Mapping[str, Mapping[str, Any]] = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=map_index
    )
    return states


async def send_to_supervisor(message: str, **fields: Any) -> Any:
    """Sends a message such as GetXCom to the supervisor of this process, and returns the answer.

    It reaches Airflow's own XComs: BaseXCom's methods use a deployment's XCom backend. execution_time/comms.py and
    execution_time/task_runner.py of the task SDK, SUPERVISOR_COMMS.
    """
    from airflow.sdk.execution_time import comms, task_runner

    return await task_runner.SUPERVISOR_COMMS.asend(getattr(comms, message)(**fields))


def is_supervisor_async() -> bool:
    """Whether this process can query Airflow without blocking: True in a triggerer, False in `dag.test()`.

    execution_time/supervisor.py of the task SDK: InProcessSupervisorComms has no `asend`.
    """
    from airflow.sdk.execution_time import task_runner

    return hasattr(task_runner.SUPERVISOR_COMMS, "asend")


def redact(value: Any) -> Any:
    """Returns `value` with Airflow's secrets masked; sdk.py of the provider common.compat 1.23.0."""
    from airflow.providers.common.compat.sdk import redact

    return redact(value)


def trigger_log_files(ti: Any) -> list[Path]:
    """Returns the files beside a task's log to which triggerers wrote its trigger's lines; empty if there are none.

    A triggerer writes to `attempt=1.log.trigger.7.log`, 7 being its job's id (jobs/triggerer_job_runner.py,
    TriggerLoggingFactory). Airflow shows the file if triggerers and API server share a directory, also after its
    triggerer was killed (utils/log/file_task_handler.py). utils/helpers.py renders the path.
    """
    from airflow.sdk import conf
    from airflow.utils.helpers import log_filename_template_renderer

    path = Path(conf.get("logging", "base_log_folder"), log_filename_template_renderer()(ti=ti))
    start = f"{path.name}.trigger."
    return [file for file in path.parent.iterdir() if file.name.startswith(start)] if path.parent.is_dir() else []


def log_stream() -> Any:
    """Returns the binary stream to which this process logs: in a triggerer's process a socket; None if not known.

    _shared/logging/structlog.py of the task SDK, LoggerFactory; execution_time/supervisor.py makes it a socket.
    """
    import structlog

    return getattr(structlog.get_config()["logger_factory"], "io", None)


def try_cleared_at(max_tries: int, retries: int) -> int:
    """Returns the try number at which a task instance was cleared last; 0 if never.

    Clearing sets max_tries to the try number plus the task's retries: models/taskinstance.py, clear_task_instances.
    """
    return max(0, max_tries - retries)


def task_instance_path(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    """Returns the path of a task instance's page in Airflow's UI; `map_index` is -1 if the task is not mapped.

    The UI's routes (ui/src/router.tsx of airflow-core): a plugin's tab is `plugin/<url_route>` below this path.
    """
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    dag, run, task = (quote(part, safe="") for part in (dag_id, run_id, task_id))
    return f"/dags/{dag}/runs/{run}/tasks/{task}{mapped}"


def call_pod_mutation_hook(pod: V1Pod) -> None:
    """Calls the hook of the deployment's airflow_local_settings.py, which may change the pod or raise; settings.py."""
    from airflow.settings import pod_mutation_hook

    pod_mutation_hook(pod)  # type: ignore[no-untyped-call]  # Airflow's


def pod_of(manifest: Mapping[str, Any]) -> V1Pod:
    """Returns a pod's manifest as an object; pod_generator.py of cncf.kubernetes, PodGenerator."""
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

    return PodGenerator.deserialize_model_dict(dict(manifest))


def safe_label_value(text: str) -> str:
    """Returns `text` as KubernetesPodOperator makes it a label's value; pod_generator.py of cncf.kubernetes."""
    from airflow.providers.cncf.kubernetes.pod_generator import make_safe_label_value

    return make_safe_label_value(text)


def set_connection_extras(hook: KubernetesHook, extras: Mapping[str, Any]) -> None:
    """Sets the extras of a hook's connection, so that it does not query Airflow for them.

    hooks/kubernetes.py of cncf.kubernetes: `conn_extras` is a cached property.
    """
    hook.__dict__["conn_extras"] = dict(extras)


def openlineage_dataset(place: Any) -> Dataset | None:
    """Returns an inlet or outlet as OpenLineage's dataset; None if it is none, or cannot be converted.

    extractors/manager.py of the OpenLineage provider, ExtractorManager.
    """
    from airflow.providers.openlineage.extractors.manager import ExtractorManager

    return ExtractorManager.convert_to_ol_dataset(place)
