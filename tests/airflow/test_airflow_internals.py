"""Airflow's private interfaces are as stepset_airflow.airflow_internals states; only that module uses them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import subprocess
import sys
import tomllib
import uuid
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from packaging.requirements import Requirement

from stepset_airflow import airflow_internals
from stepset_airflow.links.training import plugin_tab_path
from tests.airflow.airflow_version import AIRFLOW_3_4
from tests.airflow.harness import ROOT
from tests.airflow.policy import pods_changed_by

pytestmark = pytest.mark.airflow

needs_3_4 = pytest.mark.skipif(not AIRFLOW_3_4, reason="describes Airflow 3.4")
PROVIDER = ROOT / "providers/stepset_airflow"
PUBLIC = {
    "airflow.plugins_manager",
    "airflow.providers.cncf.kubernetes.hooks.kubernetes",
    "airflow.providers.openlineage.extractors.base",
    "airflow.sdk",
    "airflow.sdk.bases.decorator",
    "airflow.sdk.exceptions",
    "airflow.sdk.types",
    "airflow.triggers.base",
}
"""https://airflow.apache.org/docs/apache-airflow/stable/public-airflow-interface.html, and the providers' own pages."""


def imported_from_airflow(path: Path) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module.split(".")[0] == "airflow"}


class TestProvider:
    def test_only_airflow_internals_imports_private_modules(self) -> None:
        private = {
            str(path.relative_to(PROVIDER)): modules
            for path in PROVIDER.rglob("*.py")
            if (modules := imported_from_airflow(path) - PUBLIC)
        }
        assert set(private) == {"airflow_internals.py"}, private

    def test_all_names_imported_from_airflow_sdk_are_public(self) -> None:
        import airflow.sdk

        imported = {
            alias.name
            for path in PROVIDER.rglob("*.py")
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module == "airflow.sdk"
            for alias in node.names
        }
        assert imported <= set(airflow.sdk.__all__)

    def test_an_unknown_name_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            _ = airflow_internals.nothing  # type: ignore[attr-defined]


class TestParsing:
    def test_the_current_dag_and_task_group_are_those_of_the_enclosing_blocks(self) -> None:
        from airflow.sdk import DAG, TaskGroup

        assert airflow_internals.current_dag() is None
        with DAG("nightly", schedule=None) as dag:
            assert airflow_internals.current_dag() is dag
            assert airflow_internals.current_task_group(dag) is dag.task_group
            with TaskGroup("sweep") as group:
                assert airflow_internals.current_task_group(dag) is group

    def test_an_operator_knows_that_a_worker_creates_it_from_its_mapped_form(self) -> None:
        from airflow.sdk import DAG, BaseOperator

        created = list[bool]()

        class Each(BaseOperator):
            def __init__(self, *, number: int, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                created.append(airflow_internals.is_unmapping(self))

        with DAG("nightly", schedule=None):
            Each(task_id="plain", number=1)
            mapped = Each.partial(task_id="mapped").expand(number=[1, 2])
        mapped.unmap({"number": 1})
        assert created == [False, True]

    def test_a_checked_partial_calls_its_check_and_is_mapped_like_any_other(self) -> None:
        from airflow.sdk import DAG, BaseOperator

        class Each(BaseOperator):
            def __init__(self, *, number: int, **kwargs: Any) -> None:
                super().__init__(**kwargs)

        checked = list[Any]()

        def partial(task_id: str) -> Any:
            return airflow_internals.checked_partial(
                Each.partial(task_id=task_id), lambda *mapped: checked.append(mapped)
            )

        with DAG("nightly", schedule=None):
            first = partial("a").expand(number=[1, 2])
            partial("b").expand_kwargs([{"number": 1}])
            partial("c").expand_kwargs(first.output)
        assert checked == [
            ({"number": [1, 2]}, [(0, {"number": 1}), (1, {"number": 2})]),
            (None, [(0, {"number": 1})]),
            (None, []),
        ]
        assert first.expand_input.value == {"number": [1, 2]}

    def test_the_context_keys_are_those_that_a_decorator_sets_to_none(self) -> None:
        assert {"ti", "params", "run_id"} <= airflow_internals.KNOWN_CONTEXT_KEYS
        assert "loop" not in airflow_internals.KNOWN_CONTEXT_KEYS


class TestVersions:
    @pytest.mark.parametrize("package", ["apache-airflow", "apache-airflow-providers-cncf-kubernetes"])
    def test_the_installed_and_the_locked_version_satisfy_the_requirement(self, package: str) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        requirements = [Requirement(text) for text in project["optional-dependencies"]["airflow"]]
        required = next(each.specifier for each in requirements if each.name == package)
        assert any(each.operator == "<" for each in required)
        for found in (*(self.locked(package, lock) for lock in ("airflow", "airflow34")), version(package)):
            assert required.contains(found, prereleases=True)

    def test_airflow_is_limited_to_the_minor_versions_that_were_read_and_that_the_tests_run_with(self) -> None:
        oldest, newest = (self.locked("apache-airflow", lock) for lock in ("airflow", "airflow34"))
        text = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if '"apache-airflow>' in line)
        assert f">={oldest.rpartition('.')[0]},<3.{int(newest.split('.')[1]) + 1}" in text
        for read in (oldest, newest):
            assert f"apache-airflow {read} (task SDK" in str(airflow_internals.__doc__)
        assert version("apache-airflow") in (oldest, newest)

    def locked(self, package: str, lock: str) -> str:
        found = re.search(rf"^{package}==(\S+)", (ROOT / f"locks/{lock}.txt").read_text(), re.MULTILINE)
        assert found is not None
        return found[1]


class TestPermissions:
    def test_a_dag_s_permission_is_required_for_a_part_of_it(self) -> None:
        parameters = list(inspect.signature(airflow_internals.requires_access_dag).parameters)
        assert parameters[:2] == ["method", "access_entity"]
        airflow_internals.requires_access_dag("GET", airflow_internals.DagAccessEntity.TASK_INSTANCE)
        airflow_internals.requires_access_dag("GET", airflow_internals.DagAccessEntity.TASK_LOGS)

    def test_the_auth_manager_checks_a_part_of_a_dag_of_a_team(self) -> None:
        from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager

        parameters = inspect.signature(BaseAuthManager.is_authorized_dag).parameters
        assert {"method", "user", "access_entity", "details"} <= set(parameters)
        assert {"id", "team_name"} <= set(inspect.signature(airflow_internals.DagDetails).parameters)
        assert next(iter(inspect.signature(airflow_internals.DagModel.get_team_name).parameters)) == "dag_id"

    def test_a_user_and_a_session_are_dependencies_of_a_route(self) -> None:
        assert get_args(airflow_internals.GetUserDep)[1].dependency is airflow_internals.get_user
        assert get_args(airflow_internals.SessionDep)[0].__name__ == "Session"

    def test_the_auth_manager_returns_the_dags_that_a_user_may_read(self) -> None:
        from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager

        returned = inspect.signature(airflow_internals.get_auth_manager).return_annotation
        assert returned.startswith("BaseAuthManager")
        parameters = inspect.signature(BaseAuthManager.get_authorized_dag_ids).parameters
        assert {"user", "method", "session"} <= set(parameters)


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        ("TaskInstance", {"state", "try_number", "max_tries"}),
        ("XComModel", {"key", "value", "timestamp"}),
        ("TaskStateStoreModel", {"key", "value"}),
    ],
)
def test_the_tables_of_the_page_have_the_columns_that_it_reads(model: str, columns: set[str]) -> None:
    table = getattr(airflow_internals, model)
    if not AIRFLOW_3_4:
        where = {"map_index"}
    elif model == "XComModel":
        where = {"task_instance_id"}
    else:
        where = {"region_id", "region_index"}
    assert {"dag_id", "run_id", "task_id", *where, *columns} <= set(dir(table))
    assert airflow_internals.has_regions() is AIRFLOW_3_4


REGION = uuid.UUID(int=7)


class TestRegion:
    @needs_3_4
    def test_is_the_one_that_airflow_passes_to_a_worker(self) -> None:
        from airflow.sdk.api.datamodels._generated import TaskInstance

        assert {"region_id", "region_index"} <= set(TaskInstance.model_fields)
        values = {"id": REGION, "task_id": "t", "dag_id": "d", "run_id": "r", "try_number": 1, "dag_version_id": REGION}
        region = airflow_internals.region_of
        assert region(TaskInstance(**values)) is None
        assert region(TaskInstance(**values, region_id=uuid.UUID(int=0), region_index=-1)) is None
        inside = TaskInstance(**values, region_id=REGION, region_index=2)
        assert region(inside) == airflow_internals.loop_region_of(inside) == airflow_internals.Region(str(REGION), 2)

    @needs_3_4
    def test_of_a_mapped_task_is_in_a_loop_if_its_context_has_one(self) -> None:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        assert "_ti_context_from_server" in RuntimeTaskInstance.__private_attributes__
        contexts = (SimpleNamespace(loop=None), SimpleNamespace(loop=object()), None)
        fields: dict[str, Any] = {"map_index": 1, "region_id": REGION, "region_index": 1}
        tis = [SimpleNamespace(**fields, _ti_context_from_server=each) for each in contexts]
        found = [airflow_internals.loop_region_of(ti) for ti in tis]
        assert found == [None, airflow_internals.Region(str(REGION), 1), None]

    def test_does_not_exist_in_airflow_3_3(self) -> None:
        assert airflow_internals.region_of(SimpleNamespace(map_index=-1)) is None


class TestTriggerer:
    def test_cancels_with_a_message_when_a_user_has_acted_on_the_task(self) -> None:
        from airflow.jobs import triggerer_job_runner

        assert triggerer_job_runner._USER_ACTION_CANCEL_MSG == airflow_internals.USER_ACTION_CANCEL_MESSAGE
        cancels = inspect.getsource(triggerer_job_runner.TriggerRunner.cancel_triggers)
        message = "(_USER_ACTION_CANCEL_MSG)" if not AIRFLOW_3_4 else "(self.to_cancel, _USER_ACTION_CANCEL_MSG)"
        assert message in cancels

    def test_waits_for_on_kill(self) -> None:
        from airflow.jobs import triggerer_job_runner

        assert triggerer_job_runner._ON_CANCEL_TIMEOUT == airflow_internals.ON_KILL_TIMEOUT
        waits = inspect.getsource(triggerer_job_runner.TriggerRunner.run_trigger)
        assert "wait_for(trigger.on_kill(), timeout=_ON_CANCEL_TIMEOUT)" in waits

    def test_writes_json_lines_to_a_file_beside_the_task_s_log(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from airflow.jobs import triggerer_job_runner
        from airflow.sdk.log import logging_processors
        from airflow.utils.helpers import log_filename_template_renderer

        monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path))
        ti: Any = SimpleNamespace(id=uuid.uuid4(), dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1)
        path = log_filename_template_renderer()(ti=ti)
        factory = triggerer_job_runner.TriggerLoggingFactory(log_path=f"{path}.trigger.7.log", ti=ti)
        log = factory(logging_processors(json_output=True))
        log.info("a line", ti_id=str(ti.id), logger="stepset_airflow.triggers", timestamp="2026-01-01T00:00:00Z")
        factory.close()
        (file,) = airflow_internals.trigger_log_files(ti)
        entry = json.loads(file.read_text())
        assert entry[airflow_internals.LOG_TEXT] == "a line"
        assert entry[airflow_internals.LOG_TASK_INSTANCE] == str(ti.id)
        assert entry[airflow_internals.LOG_LOGGER] == "stepset_airflow.triggers"
        assert entry[airflow_internals.LOG_TIME] == "2026-01-01T00:00:00Z"

    def test_names_the_file_by_its_job_and_binds_the_task_instance_to_each_line(self) -> None:
        from airflow.jobs import triggerer_job_runner

        text = inspect.getsource(triggerer_job_runner)
        assert 'log_path=f"{log_path}.trigger.{log_id}.log"' in text
        assert "ti_id=str(ti.id)" in text

    def test_no_file_exists_before_a_trigger_has_logged(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path))
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1)
        assert airflow_internals.trigger_log_files(ti) == []

    def test_its_triggers_log_to_a_stream_that_structlog_s_configuration_names(self) -> None:
        program = (
            "import os, socket\n"
            "from airflow.sdk.execution_time.supervisor import _configure_logs_over_json_channel\n"
            "from stepset_airflow.airflow_internals import log_stream\n"
            "ours, theirs = socket.socketpair()\n"
            "number = os.dup(ours.fileno())\n"
            "_configure_logs_over_json_channel(number)\n"
            "assert os.fstat(log_stream().fileno()) == os.fstat(ours.fileno())\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


class Supervisor:
    """Stands for SUPERVISOR_COMMS; `answer` is what it answers."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.received: list[Any] = []

    def send(self, message: Any) -> Any:
        self.received.append(message)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def asend(self, message: Any) -> Any:
        return self.send(message)


class TestSupervisor:
    def test_returns_the_states_of_task_instances(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from airflow.sdk.execution_time import comms, task_runner

        supervisor = Supervisor(comms.TaskStatesResult(task_states={"r": {"t": "running"}}))
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
        ti: Any = SimpleNamespace(dag_id="d", run_id="r", task_id="t")
        assert airflow_internals.task_states(ti, -1) == {"r": {"t": "running"}}
        (message,) = supervisor.received
        assert (message.dag_id, message.run_ids, message.task_ids, message.map_index) == ("d", ["r"], ["t"], -1)

    @needs_3_4
    def test_returns_the_final_state_of_an_iteration_of_a_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from airflow.sdk.execution_time import comms, task_runner

        rows = [
            {"task_id": task, "map_index": -1, "state": state, "region_id": str(id_), "region_index": index}
            for task, state, id_, index in (
                ("t", "failed", REGION, 0),
                ("t", "success", REGION, 1),
                ("other", "skipped", REGION, 2),
                ("t", "skipped", uuid.UUID(int=8), 2),
            )
        ]
        supervisor = Supervisor(comms.TaskBreadcrumbsResult(breadcrumbs=[*rows, {"task_id": "t", "state": "success"}]))
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t")
        found = [
            airflow_internals.finished_state(ti, airflow_internals.Region(str(REGION), index)) for index in range(3)
        ]
        assert found == ["failed", "success", None]
        assert type(supervisor.received[0]).__name__ == "GetTaskBreadcrumbs"

    @needs_3_4
    def test_refuses_to_read_xcoms_for_a_try_that_is_not_the_latest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from airflow.api_fastapi.execution_api.routes import xcoms
        from airflow.sdk.exceptions import AirflowRuntimeError
        from airflow.sdk.execution_time import comms, task_runner

        assert "TaskInstance.working_set" in inspect.getsource(xcoms._resolve_trigger_token)
        assert "status.HTTP_403_FORBIDDEN" in inspect.getsource(xcoms._resolve_trigger_token)
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)

        def answer(status: int) -> bool:
            refusal = comms.ErrorResponse(detail={"status_code": status})
            supervisor = Supervisor(AirflowRuntimeError(refusal))
            monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
            return airflow_internals.is_latest_try(ti)

        assert answer(403) is False
        with pytest.raises(AirflowRuntimeError):
            answer(500)
        supervisor = Supervisor(comms.XComResult(key="return_value", value=None))
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
        assert airflow_internals.is_latest_try(ti) is True

    def test_gets_sets_and_deletes_xcoms(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from airflow.sdk.execution_time import comms, task_runner

        supervisor = Supervisor(comms.XComResult(key="k", value={"a": 1}))
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
        where = {"key": "k", "dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}
        send = airflow_internals.send_to_supervisor
        assert asyncio.run(send("GetXCom", **where)).value == {"a": 1}
        asyncio.run(send("SetXCom", **where, value={"a": 1}))
        asyncio.run(send("DeleteXCom", **where))
        assert [type(message).__name__ for message in supervisor.received] == ["GetXCom", "SetXCom", "DeleteXCom"]
        assert all(where.items() <= message.model_dump().items() for message in supervisor.received)

    def test_answers_without_blocking_only_in_a_triggerer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from airflow.jobs.triggerer_job_runner import TriggerCommsDecoder
        from airflow.sdk.execution_time import task_runner
        from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms

        for comms, expected in ((TriggerCommsDecoder, True), (InProcessSupervisorComms, False)):
            monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
            assert airflow_internals.is_supervisor_async() is expected


def test_secrets_are_masked() -> None:
    masked = airflow_internals.redact({"password": "abc", "loss": 0.5})
    assert masked == {"password": airflow_internals.SECRET_MASK, "loss": 0.5}


def test_each_line_of_a_masked_value_is_masked() -> None:
    airflow_internals.mask_secret("planted-first\nplanted-second\n")
    assert airflow_internals.redact("a planted-second b") == f"a {airflow_internals.SECRET_MASK} b"


def test_clearing_a_task_adds_its_retries_to_its_try_number() -> None:
    from airflow.models.taskinstance import clear_task_instances

    tried = "previous_try_number" if AIRFLOW_3_4 else "ti.try_number"
    assert f"ti.max_tries = {tried} + task.retries" in inspect.getsource(clear_task_instances)
    assert airflow_internals.try_cleared_at(max_tries=3, retries=3) == 0
    assert airflow_internals.try_cleared_at(max_tries=2 + 3, retries=3) == 2


@pytest.fixture(scope="module")
def script() -> str:
    """The script of Airflow's UI."""
    import airflow

    dist = Path(str(airflow.__file__)).parent / "ui/dist/assets"
    return "\n".join(path.read_text() for path in dist.glob("index-*.js"))


class TestUserInterface:
    def test_has_the_routes_of_a_task_instance_and_of_a_plugin_s_tab(self, script: str) -> None:
        task = "dags/:dagId/runs/:runId/tasks/:taskId"
        assert {task, f"{task}/mapped/:mapIndex", "plugin/:page/*"} <= set(re.findall(r"path:`([^`]*)`", script))
        path = plugin_tab_path
        assert path("d", "a/b", "t", -1, "tab") == "/dags/d/runs/a%2Fb/tasks/t/plugin/tab"
        assert path("d", "r", "t", 3, "tab") == "/dags/d/runs/r/tasks/t/mapped/3/plugin/tab"

    @needs_3_4
    def test_names_a_region_in_the_query_of_its_address(self, script: str) -> None:
        assert {"e.REGION_ID=`region_id`", "e.REGION_INDEX=`region_index`"} <= set(re.findall(r"e\.\w+=`\w+`", script))
        found = plugin_tab_path("d", "r", "t", -1, "tab", airflow_internals.Region("7", 2))
        assert found == "/dags/d/runs/r/tasks/t/plugin/tab?region_id=7&region_index=2"

    def test_stores_the_chosen_theme_under_the_key_that_the_page_reads(self, script: str) -> None:
        (key,) = re.findall(r'const AIRFLOW = "(\w+)"', (PROVIDER / "page/static/theme.js").read_text())
        assert re.search(rf"storageKey:\w+=`{key}`", script)

    def test_stores_the_chosen_time_zone_under_the_key_that_the_page_reads(self, script: str) -> None:
        (key,) = re.findall(r'const AIRFLOW = "(\w+)"', (PROVIDER / "page/static/timezone.js").read_text())
        assert re.search(rf"[ ,]\w+=`{key}`", script)


class TestKubernetesProvider:
    def test_a_manifest_becomes_a_pod_which_the_deployment_s_hook_may_change(self) -> None:
        spec = {"containers": [{"name": "node", "image": "train:1"}]}
        pod = airflow_internals.pod_of({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": spec})

        def change(pod: Any) -> None:
            pod.spec.priority_class_name = "high"

        with pods_changed_by(change):
            airflow_internals.call_pod_mutation_hook(pod)
        assert pod.spec.containers[0].image == "train:1"
        assert pod.spec.priority_class_name == "high"

    def test_a_hook_with_extras_does_not_query_its_connection(self) -> None:
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

        assert isinstance(KubernetesHook.__dict__["conn_extras"], cached_property)
        hook = KubernetesHook(conn_id="no_such_connection")
        airflow_internals.set_connection_extras(hook, {"namespace": "research"})
        assert hook.get_namespace() == "research"


def test_openlineage_converts_inlets_and_outlets() -> None:
    from openlineage.client.event_v2 import Dataset

    dataset = Dataset(namespace="s3://bucket", name="key")
    assert airflow_internals.openlineage_dataset(dataset) is dataset
    assert airflow_internals.openlineage_dataset(object()) is None


class TestWorkarounds:
    """Behaviour of Airflow that stepset's code works around: the code is needed no longer once one of these fails."""

    def test_execute_continues_after_sigterm_has_called_on_kill(self) -> None:
        from airflow.sdk.execution_time import task_runner

        # apache/airflow#73006; DistributedTrainOperator.execute raises AirflowException instead.
        handler = re.search(r"def _on_term\(.*?signal\.signal\(", inspect.getsource(task_runner), re.DOTALL)
        assert handler is not None
        assert "ti.task.on_kill()" in handler[0]
        assert "raise" not in handler[0]

    def test_a_triggerer_reads_4_kib_of_its_triggers_logs_at_a_time(self) -> None:
        from airflow.sdk.execution_time.supervisor import make_buffered_socket_reader

        # triggerer/log_backpressure.py limits what is written.
        assert inspect.signature(make_buffered_socket_reader).parameters["buffer_size"].default == 4096

    def test_a_triggerer_cancels_an_unwanted_trigger_repeatedly(self) -> None:
        from airflow.jobs import triggerer_job_runner

        # triggerer/cancellation.py: the set is sent with every synchronization until the trigger has ended.
        assert "to_cancel=self.cancelling_triggers" in inspect.getsource(triggerer_job_runner)
