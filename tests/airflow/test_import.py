"""Importing the provider imports no slow module: a DAG processor repeats the imports of every DAG file."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.airflow

NEW_MODULES = """
import json, sys
{before}
known = set(sys.modules)
{imports}
print(json.dumps(sorted(set(sys.modules) - known)))
"""


def new_modules(imports: str, before: str = "") -> set[str]:
    """The modules that `imports` loads in a new interpreter that has executed `before`."""
    program = NEW_MODULES.format(before=before, imports=imports)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=300)
    return set(json.loads(done.stdout.decode().splitlines()[-1]))


def test_the_operator_adds_only_its_own_modules_to_those_of_every_dag_file() -> None:
    added = new_modules("from stepset_airflow import DistributedTrainOperator", "from airflow.sdk import DAG, task")
    foreign = {name for name in added if name.split(".")[0] != "stepset_airflow"}
    # Every operator with links needs airflow.sdk.bases.operatorlink: a class of forty lines.
    light = {"airflow.sdk.bases.operatorlink", "stepset", "stepset.defaults", "stepset.surrogates"}
    assert foreign <= {*sys.stdlib_module_names, *light}, foreign
    assert "stepset_airflow.operators.distributed_train" in added


def test_a_dag_file_with_tasks_imports_the_job_s_model_but_nothing_else_of_the_core_and_no_client() -> None:
    dag_file = (
        "from stepset_airflow import DistributedTrainOperator as Train\n"
        "with DAG('many'):\n"
        "    for i in range(100):\n"
        "        Train(task_id=f't{i}', script='train.py', num_nodes=2, env={'LR': '0.1'})\n"
    )
    added = new_modules(dag_file, "from airflow.sdk import DAG")
    assert not {name.split(".")[0] for name in added} & {"kubernetes", "kubernetes_asyncio", "aiohttp", "typer"}
    core = {name for name in added if name.startswith("stepset.") and not name.startswith("stepset.spec")}
    light = {
        "defaults",
        "errors",
        "exit_code",
        "printable",
        "regular_files",
        "safe_names",
        "surrogates",
        "unstructured",
    }
    assert core == {f"stepset.{name}" for name in light}
    # The model needs pydantic, which airflow.sdk has imported.
    assert {name for name in added if name.split(".")[0] in {"pydantic", "yaml"}} <= {"pydantic.functional_serializers"}


def test_the_provider_info_imports_only_itself() -> None:
    added = new_modules("import stepset_airflow.get_provider_info as p; p.get_provider_info()")
    ours = {"stepset_airflow", "stepset_airflow.get_provider_info"}
    assert {name for name in added if name.split(".")[0] not in sys.stdlib_module_names} == ours


def test_the_plugin_which_every_process_loads_imports_no_web_framework_and_no_client() -> None:
    added = {
        name.split(".")[0]
        for name in new_modules("import stepset_airflow.plugins.training_page", "import airflow.plugins_manager")
    }
    assert not added & {"fastapi", "kubernetes", "kubernetes_asyncio", "pydantic", "sqlalchemy", "stepset", "yaml"}
