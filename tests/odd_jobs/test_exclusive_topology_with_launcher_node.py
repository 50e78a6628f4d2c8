"""A rack of their own for the nodes, one of which is the launcher: JobSet gives each Job a rack of its own."""

from __future__ import annotations

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob, everywhere
from tests.targets.making import replicated_job

RACK = "cloud.example/rack"
ODD_JOB = OddJob(
    job={
        "num_nodes": 2,
        "framework": {"kind": "mpi", "run_launcher_as_node": True},
        "scheduling": {"topology": {"exclusive": RACK}},
    },
    expected="Refused: the launcher could not run in the domain of the other node.",
    source="jobset v0.12.0 pkg/webhooks/pod_webhook.go (setExclusiveAffinities)",
    refused={
        **everywhere("scheduling.topology.exclusive: with run_launcher_as_node the launcher is a node"),
        **WITHOUT_LAUNCHER,
        "volcano": "scheduling.topology.exclusive: only a JobSet has it",
    },
)


@pytest.mark.parametrize("target", ["jobset", "trainjob"])
def test_a_launcher_that_is_the_only_node_is_possible(target: str) -> None:
    assert ODD_JOB.render(target, num_nodes=1)


def test_a_launcher_that_is_the_only_node_has_a_domain() -> None:
    objects = ODD_JOB.render("jobset", num_nodes=1)
    annotations = replicated_job(objects, "launcher")["template"]["metadata"]["annotations"]
    assert annotations == {"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK}
