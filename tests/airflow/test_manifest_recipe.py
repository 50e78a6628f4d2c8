"""The program in docs/airflow.md that prints the manifests of a DAG's task, and its tests of a DAG, work as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.airflow.harness import HOME

pytestmark = [pytest.mark.airflow, pytest.mark.frameworks]

PAGE = Path(__file__).parents[2] / "docs" / "airflow.md"
DAG = """
from airflow.sdk import DAG
from stepset_airflow import DistributedTrainOperator
with DAG("nightly", schedule=None, params={"epochs": 3}) as dag:
    DistributedTrainOperator(
        task_id="train", image="train:1", script="train.py", num_nodes=2, target="trainjob",
        args=["--epochs", "{{ params.epochs }}"],
    )
"""


def block(name: str) -> str:
    """The code block of the page that starts with the name of a file."""
    found = re.search(rf"```python\n(# {re.escape(name)}\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_recipe_prints_the_manifests_without_a_cluster(tmp_path: Path) -> None:
    for name, text in {"manifest.py": block("manifest.py"), "nightly.py": DAG, "train.py": "print(1)"}.items():
        (tmp_path / name).write_text(text, "utf-8")
    variables = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "home"), "KUBECONFIG": "/no/such/file"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "manifest.py"], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    manifests = list(yaml.safe_load_all(done.stdout))
    workload = manifests[-1]
    assert workload["kind"] == "TrainJob"
    assert workload["spec"]["trainer"]["numNodes"] == 2
    assert workload["spec"]["trainer"]["args"] == ["--epochs", "{{ params.epochs }}"]


def test_the_tests_of_a_dag_pass(airflow_db: None, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "dags").mkdir(parents=True)
    shutil.copy(HOME / "airflow.db", home)
    (home / "dags/nightly.py").write_text(DAG, "utf-8")
    (home / "dags/train.py").write_text("import sys\nassert sys.argv[1:] == ['--epochs', '1']\n", "utf-8")
    (tmp_path / "test_nightly.py").write_text(block("test_nightly.py"), "utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    variables = {**kept, "AIRFLOW_HOME": str(home), "STEPSET_HOME": str(tmp_path / "stepset")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nightly.py"]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "3 passed" in done.stdout
