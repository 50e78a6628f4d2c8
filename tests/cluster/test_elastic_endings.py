"""An elastic run on a cluster succeeds only if every node of torchrun's last rendezvous round has ended with 0.

A node is lost while it saves, when the rank of the other one has ended with 0. All cases run on one machine:
tests/local/test_elastic_endings.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from stepset.run_status import Phase
from tests.cluster.many import Many, many, shared
from tests.cluster.test_frameworks import SYSTEM_PATH
from tests.cluster.testbed.handle import Cluster
from tests.local.test_elastic_endings import RANK, Stage, write_torchrun
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.frameworks]

RESTARTS = {"again": 5, "final": 0}
"""Run -> restarts of its pods."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the pods share with the test."""
    return tmp_path_factory.mktemp("stage")


@pytest.fixture(scope="module")
def ended(cluster: Cluster, stage: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    """The runs whose node 1 was lost during its last save."""
    template = shared(cluster, stage)  # skips without the test cluster
    programs = write_torchrun(stage / "bin")
    path = ":".join([str(programs), str(Path(cluster.python).parent), SYSTEM_PATH])
    jobs = {name: _job(stage / name, path, template, restarts) for name, restarts in RESTARTS.items()}
    with many(cluster, tmp_path_factory.mktemp("submitter"), jobs) as runs:
        for name in RESTARTS:
            where = Stage(stage / name)
            assert until(lambda where=where: where.has("during.1") and len(where.ended()) == 1), "not saving"
            (where.path / "killed").touch()
            pods = [pod["metadata"] for pod in runs.runs.pods() if pod["metadata"]["labels"]["stepset.dev/run"] == name]
            _evict(runs, pods[1]["name"])
        for name in RESTARTS:
            runs.end(name)
        yield runs


def _job(stage: Path, path: str, template: dict[str, Any], restarts: int) -> dict[str, Any]:
    stage.mkdir()
    settings = {"last_call_timeout": 30, "keep_alive_interval": 1, "read_timeout": 120}
    return {
        "text": dedent(RANK),
        "framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2, "rdzv_conf": settings}},
        "num_nodes": 2,
        "procs_per_node": 1,
        # Pods without a CPU request get almost no CPU time on a busy machine.
        "resources_per_node": {"requests": {"cpu": "300m"}},
        "restart": {"max_restarts": restarts},
        "deadline": "9m",
        "env": {"PATH": path, "STAGE": str(stage), "WHEN": "during", "VICTIMS": "1"},
        "pod_template": {**template, "terminationGracePeriodSeconds": 1},
    }


def _evict(runs: Many, pod: str) -> None:
    """Evicts a pod, as the loss of a node does: the Job replaces it without counting."""
    namespace = runs.runs.namespace
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    runs.runs.cluster.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(body))


def test_a_run_that_may_restart_pods_succeeds_with_a_complete_last_round(ended: Many, stage: Path) -> None:
    status = ended.end("again")
    assert status.phase is Phase.SUCCEEDED, status.failure
    assert Stage(stage / "again").last_round_is_complete()


def test_a_run_without_restarts_fails_by_node_0(ended: Many) -> None:
    status = ended.end("final")
    assert status.phase is Phase.FAILED and status.failure is not None
    codes = [
        row["state"]["terminated"]["exitCode"]
        for pod in ended.runs.pods()
        if pod["metadata"]["labels"]["stepset.dev/run"] == "final"
        and pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
        for row in pod["status"]["containerStatuses"]
    ]
    assert codes == [71], status.failure
