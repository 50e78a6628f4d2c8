"""Fake nodes run dozens of jobs, and the pods' annotations determine their end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.testbed import manifests, scale
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice

# The API server gives up requests after fixed times, which are short for many pods that share two cores.
pytestmark = pytest.mark.cluster


def fake_jobset(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    """A JobSet of two pods without a program, for fake nodes only."""
    containers = [{"name": "node", "image": "no-such-image"}]
    spec = {"restartPolicy": "Never", "containers": containers, **scale.PLACEMENT}
    pods = {"metadata": {"annotations": annotations}, "spec": spec}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "completionMode": "Indexed", "template": pods}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job}}]},
    }


@pytest.fixture(scope="module")
def fake_nodes(testbed_choice: Choice) -> Iterator[None]:
    with scale.nodes(testbed_choice, 4):
        yield


@pytest.mark.usefixtures("fake_nodes")
class TestFakeNodes:
    def test_dozens_of_jobsets_complete(self, cluster: Cluster, namespace: str) -> None:
        jobs = [fake_jobset(f"job-{index}", {scale.RUN_FOR: "2s"}) for index in range(30)]
        cluster.kubectl("create", "-n", namespace, "-f", "-", text=manifests.bundle(jobs))
        cluster.kubectl("wait", "--for=condition=Completed", "jobset", "--all", "-n", namespace, "--timeout=180s")
        assert len(cluster.get("jobsets", namespace)["items"]) == 30

    def test_the_annotated_index_fails_with_the_annotated_exit_code(self, cluster: Cluster, namespace: str) -> None:
        notes = {scale.RUN_FOR: "1s", scale.FAIL_INDEX: "1", scale.EXIT_CODE: "7"}
        cluster.apply(fake_jobset("broken", notes), namespace)
        cluster.kubectl("wait", "--for=condition=Failed", "jobset/broken", "-n", namespace, "--timeout=180s")
        codes = {
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]: pod["status"][
                "containerStatuses"
            ][0]["state"]["terminated"]["exitCode"]
            for pod in cluster.get("pods", namespace)["items"]
        }
        assert codes.get("1") == 7
        assert codes.get("0", 0) == 0, "the peer succeeded or was deleted with its job"
