"""The parameters of KubernetesPodOperator: the table, the errors made from it, and docs/airflow-kpo.md."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG

from stepset.defaults import JOB_FIELDS
from stepset.frameworks.launcher_options import TORCHRUN_OPTIONS_SET_BY_STEPSET
from stepset.rendering import make_request, render
from stepset.sources import read_sources
from stepset_airflow import DistributedTrainOperator, DistributedTrainSensor
from stepset_airflow.parsing.kpo_parameters import JOB, KPO_PARAMETERS, POD, KpoParameter
from stepset_airflow.parsing.unknown_parameters import parameters_of
from stepset_airflow.run.job_fields import job_of
from tests.airflow.harness import ROOT

pytestmark = pytest.mark.airflow

PAGE = (ROOT / "docs/airflow-kpo.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
OURS = parameters_of(DistributedTrainOperator)
SENSORS = parameters_of(DistributedTrainSensor)

EVERY_ROW = pytest.mark.parametrize("row", KPO_PARAMETERS.values(), ids=KPO_PARAMETERS)


def constructor_parameters(operator: type) -> set[str]:
    return set(inspect.signature(operator.__init__).parameters) - {"self", "kwargs"}  # type: ignore[misc]


def rows_of(operator: str) -> set[str]:
    return {row.name for row in KPO_PARAMETERS.values() if row.operator == operator}


def example_of(row: KpoParameter) -> dict[str, Any]:
    found = eval(f"dict({row.example})")
    assert isinstance(found, dict)
    return found


class TestTable:
    def test_the_table_has_every_parameter_of_the_installed_operators_and_no_other(self) -> None:
        pod = constructor_parameters(KubernetesPodOperator)
        assert rows_of(POD) == pod
        assert rows_of(JOB) == constructor_parameters(KubernetesJobOperator) - pod

    @EVERY_ROW
    def test_a_row_is_unchanged_or_has_an_example_or_says_what_to_do(self, row: KpoParameter) -> None:
        assert not (row.unchanged and row.example)
        assert row.unchanged or row.example or row.note

    @EVERY_ROW
    def test_an_unchanged_parameter_exists_here_and_a_parameter_of_other_values_too(self, row: KpoParameter) -> None:
        other_values = row.name in example_of(row)
        assert (row.name in OURS) == (row.unchanged or other_values)

    @EVERY_ROW
    def test_the_example_is_accepted(self, row: KpoParameter, tmp_path: Path) -> None:
        example = example_of(row)
        program = {} if {"script", "job"} & example.keys() else {"script": "train.py"}
        with DAG("nightly", schedule=None):
            operator = DistributedTrainOperator(task_id="train", image="train:1", **program, **example)
        if "job" not in example:
            (tmp_path / "train.py").write_text("")
            fields = {name: getattr(operator, name) for name in JOB_FIELDS}
            job, base = job_of(None, fields, operator.queue_name, tmp_path)
            render(make_request(job, read_sources(job, base), namespace="ml"), "jobset")


class TestErrors:
    @EVERY_ROW
    def test_a_value_that_cannot_be_converted_is_rejected_with_the_text_of_the_row(self, row: KpoParameter) -> None:
        if row.name in OURS:
            return
        with DAG("nightly", schedule=None), pytest.raises(TypeError) as raised:
            DistributedTrainOperator(task_id="train", script="train.py", **{row.name: object()})
        assert str(raised.value) == f"DAG 'nightly', task 'train': {row.name}: {row.error()}"
        assert (row.example or "does not exist here") in str(raised.value)

    @EVERY_ROW
    def test_the_sensor_rejects_what_it_does_not_have(self, row: KpoParameter) -> None:
        if row.name in SENSORS:
            return
        with DAG("nightly", schedule=None), pytest.raises(TypeError) as raised:
            DistributedTrainSensor(task_id="wait", run_name="digits-1", **{row.name: "x"})
        assert str(raised.value) == f"DAG 'nightly', task 'wait': {row.name}: {row.error_in_sensor()}"

    @pytest.mark.parametrize(
        ("name", "value"),
        [("on_finish_action", "delete_pod"), ("on_kill_action", "keep_pod"), ("callbacks", [object])],
    )
    def test_a_value_of_the_other_operator_is_an_error_that_names_ours(self, name: str, value: object) -> None:
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match=rf"task 'train': {name}: .* (use|give) "):
            DistributedTrainOperator(task_id="train", script="train.py", **{name: value})


class TestPage:
    @pytest.fixture
    def generator(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location("kpo_docs", ROOT / "tools" / "kpo_docs.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def test_the_page_contains_the_generators_tables(self, generator: ModuleType) -> None:
        assert generator.PAGE.read_text() == generator.page(), "run: make docs"

    def test_the_dags_of_the_guide_can_be_parsed(self) -> None:
        for before, after in zip(BLOCKS[::2], BLOCKS[1::2], strict=True):
            assert "KubernetesPodOperator(" in before
            assert "DistributedTrainOperator(" in after
        for block in BLOCKS:
            exec(compile(block, "docs/airflow-kpo.md", "exec"), {})

    def test_the_guide_lists_the_flags_of_torchrun_that_a_suggested_command_does_not_have(self) -> None:
        table = PAGE.partition("| flag | instead |")[2].partition("\n\n")[0]
        listed = {flag for row in table.splitlines() for flag in re.findall(r"`--([a-z-]+)`", row.partition(" | ")[0])}
        assert listed == {name.removeprefix("--").replace("_", "-") for name in TORCHRUN_OPTIONS_SET_BY_STEPSET}

    def test_the_shell_of_the_guide_starts_torchrun_without_these_flags(self, tmp_path: Path) -> None:
        defined: dict[str, Any] = {}
        exec(BLOCKS[3].replace('@daily"):', '@daily") as dag:'), defined)
        (operator,) = defined["dag"].tasks
        fields = {name: getattr(operator, name) for name in JOB_FIELDS}
        job, base = job_of(None, fields, None, tmp_path)
        plan = make_request(job, read_sources(job, base)).plan
        group = plan.group("node")
        assert "--" not in job.args[0].replace("--epochs", "")
        assert (job.command, group.count, group.agent is not None) == (["bash", "-cx"], 4, True)
        assert {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"} <= {entry.name for entry in group.env}

    def test_the_job_of_the_guide_starts_torchrun_with_the_resources_of_the_pod_before(self, tmp_path: Path) -> None:
        defined: dict[str, Any] = {}
        exec(BLOCKS[1].replace('@daily"):', '@daily") as dag:'), defined)
        (operator,) = defined["dag"].tasks
        (tmp_path / "train.py").write_text("")
        fields = {name: getattr(operator, name) for name in JOB_FIELDS}
        job, base = job_of(None, fields, None, tmp_path)
        (workload,) = [
            each
            for each in render(make_request(job, read_sources(job, base), namespace="ml"), "jobset")
            if each["kind"] == "JobSet"
        ]
        (group,) = workload["spec"]["replicatedJobs"]
        pod = group["template"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert group["template"]["spec"]["parallelism"] == 4
        assert "torchrun" in container["command"] + container.get("args", [])
        assert container["resources"]["limits"] == {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["serviceAccountName"] == "trainer"

    def test_the_error_that_the_guide_shows_is_that_of_the_operator(self) -> None:
        with DAG("nightly", schedule=None), pytest.raises(TypeError) as raised:
            DistributedTrainOperator(task_id="train", script="train.py", env_vars={"LR": "0.1"})
        assert f"```text\n{raised.value}\n```" in PAGE
