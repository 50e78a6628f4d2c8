"""MPI whose pods have a startupProbe of their own, beside that of the nodes' ssh servers."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import container

WORDS = "pod_template.containers.node.startupProbe: the nodes of this job have a startupProbe for their ssh server"
ODD_JOB = OddJob(
    job={
        "framework": "mpi",
        "num_nodes": 2,
        "pod_template": {"containers": [{"name": "node", "startupProbe": {"exec": {"command": ["true"]}}}]},
    },
    expected="The job is refused; merged, the probe would have two handlers, and no node would ever be created.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go (validateHandler)",
    refused=everywhere(WORDS),
)


@pytest.mark.parametrize("target", ["jobset", "trainjob", "volcano"])
def test_the_thresholds_of_the_probe_can_be_changed(target: str) -> None:
    template = {"containers": [{"name": "node", "startupProbe": {"failureThreshold": 5}}]}
    probe = container(ODD_JOB.render(target, pod_template=template))["startupProbe"]
    assert probe == {"tcpSocket": {"port": 2222}, "periodSeconds": 1, "failureThreshold": 5}
