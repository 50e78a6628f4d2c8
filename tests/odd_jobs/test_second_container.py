"""An exporter beside the training container, which never ends: the pods end with their ranks."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.targets.pod_templates import templates_of
from tests.odd_jobs import OddJob

# Named first, so that no rule depends on the order of the list.
CONTAINERS = [{"$patch": "replace"}, {"name": "exporter", "image": "exporter:1"}, {"name": "node", "image": "train:1"}]
ODD_JOB = OddJob(
    job={"num_nodes": 2, "pod_template": {"containers": CONTAINERS}},
    expected="The exporter is a native sidecar, so that a pod ends with its rank.",
    source="kubernetes v1.36 pkg/kubelet/kubelet_pods.go (getPhase); docs/targets.md",
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_only_the_training_container_keeps_a_pod_running(target: str) -> None:
    workloads = [
        each for each in ODD_JOB.render(target) if each["kind"] in ("JobSet", "TrainingRuntime", "Job", "StatefulSet")
    ]
    for template in templates_of(workloads[-1]):
        spec: dict[str, Any] = template["spec"]
        assert [row["name"] for row in spec["containers"]] == ["node"]
        assert [(row["name"], row["restartPolicy"]) for row in spec["initContainers"]] == [("exporter", "Always")]
