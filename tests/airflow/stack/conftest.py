"""Fixtures of the tests in a real Airflow: one Airflow for all, and a namespace and DAGs for each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.stack.airflow import Airflow, running_airflow
from tests.airflow.stack.created import Created, created
from tests.airflow.stack.postgres import NoPostgresError, programs
from tests.airflow.stack.rest import Run
from tests.cluster.conftest import cluster, namespace, runs  # noqa: F401  # fixtures
from tests.cluster.runs import Runs
from tests.cluster.testbed.handle import Cluster


@pytest.fixture(scope="session")
def airflow() -> Iterator[Airflow]:
    """The Airflow that all tests share."""
    try:
        programs()
    except NoPostgresError as error:
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    with running_airflow() as running:
        yield running


@dataclass
class Stage:
    """The environment of a test: a namespace, an account in it, Airflow's connection to it, and DAGs.

    Args:
        airflow: the Airflow.
        tasks: source text of tasks, and the account.
        jobsets: the record of created JobSets.
        name: the test's name, with which the ids of its DAGs start.
    """

    airflow: Airflow
    tasks: Tasks
    jobsets: Created
    name: str
    dags: list[str] = field(default_factory=list)

    @property
    def connection(self) -> str:
        """The id of Airflow's connection."""
        return self.tasks.runs.namespace

    def train(self, **parameters: Any) -> str:
        """Source text of a task that trains in this namespace, with the script that `dag` writes."""
        script = f"{self.dag_id}/train.py"
        return self.tasks.train(**{"kubernetes_conn_id": self.connection, "script": script, **parameters})

    @property
    def dag_id(self) -> str:
        """The id of the next DAG."""
        return f"{self.name}_{len(self.dags)}"

    def dag(self, tasks: str, script: str = "", imports: str = "", schedule: str = "None") -> str:
        """Writes a DAG file and returns the DAG's id.

        Args:
            tasks: source text of its tasks.
            script: the script of its trainings.
            imports: Python source for the top of the file, after the usual imports.
            schedule: the DAG's schedule, as Python source.
        """
        dag_id = self.dag_id
        head = (
            "from airflow.sdk import DAG, Asset, AssetWatcher, task\n"
            "from stepset_airflow import DistributedTrainOperator, DistributedTrainSensor, JobSetFinishedEventTrigger\n"
        )
        text = f"{head}{imports}\nwith DAG({dag_id!r}, schedule={schedule}):\n{indent(tasks, '    ')}\n"
        self.airflow.write_dag(dag_id, text, script)
        self.dags.append(dag_id)
        return dag_id

    def run(self, tasks: str, script: str = "", **more: str) -> Run:
        """Writes a DAG file and triggers a run."""
        return self.airflow.rest.trigger(self.dag(tasks, script, **more))

    def nothing_left(self) -> None:
        """Waits until all objects of the runs are deleted or being deleted."""
        self.tasks.runs.wait_nothing_left()


@pytest.fixture
def stage(
    airflow: Airflow,
    cluster: Cluster,  # noqa: F811  # the fixture
    runs: Runs,  # noqa: F811  # the fixture
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Stage]:
    """The environment of a test."""
    kube_config = yaml.safe_load(runs.kubeconfig.read_text())
    extra = {"kube_config": json.dumps(kube_config), "namespace": runs.namespace}
    connection = {"connection_id": runs.namespace, "conn_type": "kubernetes", "extra": json.dumps(extra)}
    airflow.rest.request("POST", "/connections", connection)
    name = request.node.name.removeprefix("test_").translate(str.maketrans("[] ", "___"))
    with created(cluster, runs.namespace, tmp_path / "jobsets") as jobsets:
        stage = Stage(airflow, Tasks(runs), jobsets, name)
        yield stage
    for dag_id in stage.dags:
        airflow.remove_dag(dag_id)
