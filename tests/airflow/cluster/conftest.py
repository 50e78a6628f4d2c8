"""Fixtures of the Airflow tests on a real cluster: tasks whose runs use an account with the minimal Role."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepset.run_status import RunStatus
from stepset.targets.pods.strategic_merge import merge
from tests.airflow.workers import StartWorker, forked_workers
from tests.cluster.conftest import (  # noqa: F401  # fixtures, and the hook that repairs the cluster
    cluster,
    namespace,
    pytest_runtest_teardown,
    runs,
    testbed_choice,
)
from tests.cluster.runs import Runs


@dataclass
class Tasks:
    """Source text of tasks for DAG files, and the objects of their runs on the cluster.

    Args:
        runs: the account and its namespace.
    """

    runs: Runs

    def train(self, text: str = "", /, **parameters: Any) -> str:
        """A DistributedTrainOperator with train.py as its script, runnable on this cluster.

        Args:
            text: more parameters, as Python source.
            parameters: plain values; see `parameters`.
        """
        words = [f"{name}={value!r}" for name, value in self.parameters(**{"task_id": "train", **parameters}).items()]
        return f"DistributedTrainOperator({', '.join([*words, text])})"

    def parameters(self, **parameters: Any) -> dict[str, Any]:
        """Parameters with which the operator works on this cluster, without those that are None.

        Args:
            parameters: additional ones; `pod_template` is merged over the template that this cluster needs.
        """
        template = merge(self.runs.cluster.pod_template(), parameters.pop("pod_template", {}))
        given = {
            "framework": {"kind": "torch", "launcher": "none"},
            "image": self.runs.cluster.image,
            "pod_template": template,
            "script": "train.py",
            **parameters,
        }
        return {name: value for name, value in given.items() if value is not None}

    def workloads(self) -> list[dict[str, Any]]:
        """The JobSets in the namespace, the oldest first."""
        found: list[dict[str, Any]] = self.runs.get("jobsets")["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def token(self) -> str:
        """The account's bearer token."""
        return str(yaml.safe_load(self.runs.kubeconfig.read_text())["users"][0]["user"]["token"])

    def verdict(self) -> RunStatus:
        """The verdict in the annotation of the only JobSet."""
        (workload,) = self.workloads()
        return RunStatus.from_dict(json.loads(workload["metadata"]["annotations"]["stepset.dev/verdict"]))


@pytest.fixture
def tasks(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Tasks:  # noqa: F811  # the fixture
    """Tasks that reach the cluster through Airflow's connection kubernetes_default."""
    extra = {"kube_config_path": str(runs.kubeconfig), "namespace": runs.namespace}
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    return Tasks(runs)


@pytest.fixture
def kubeconfig(runs: Runs) -> Path:  # noqa: F811  # the fixture
    """The account's kubeconfig."""
    return runs.kubeconfig


@pytest.fixture(scope="module")
def start_worker(airflow_db: None) -> Iterator[StartWorker]:
    """The fixture of tests/airflow, with processes that have imported the modules for a run on a cluster."""
    from stepset_airflow.triggerer.imports import MODULES

    with forked_workers(*MODULES) as start:
        yield start
