"""A rack of their own for the nodes, on machines that an administrator has labelled for the Job (node selectors)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import of_kind, pod, replicated_job

RACK = "cloud.example/rack"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"
ONLY = "scheduling.topology.exclusive: only a JobSet has it"
ODD_JOB = OddJob(
    job={
        "num_nodes": 2,
        "annotations": {STRATEGY: "true"},
        "scheduling": {"topology": {"exclusive": RACK}},
        "roles": [{"name": "board", "command": ["true"]}],
    },
    expected="The Job of the nodes has both annotations, so JobSet sets its node selector and its toleration.",
    source="jobset v0.12.0 pkg/controllers/jobset_controller.go (labelAndAnnotateObject, constructJob)",
    refused={"statefulset": ONLY, "job": ONLY, "volcano": ONLY},
)


def annotations_of_job(objects: list[dict[str, Any]], target: str, group: str) -> Any:
    if target == "jobset":
        return replicated_job(objects, group)["template"].get("metadata", {}).get("annotations")
    rows = of_kind(objects, "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    (row,) = [row for row in rows if row["name"] == group]
    return row["template"].get("metadata", {}).get("annotations")


@pytest.mark.parametrize("target", ODD_JOB.targets)
@pytest.mark.parametrize("place", ["annotations", "pod_template"])
def test_jobset_reads_the_request_and_the_strategy_from_the_same_object(target: str, place: str) -> None:
    job = {"annotations": {}, "pod_template": {"metadata": {"annotations": {STRATEGY: "true"}}, "spec": {}}}
    objects = ODD_JOB.render(target, **(job if place == "pod_template" else {}))
    assert annotations_of_job(objects, target, "node") == {EXCLUSIVE: RACK, STRATEGY: "true"}
    assert annotations_of_job(objects, target, "board") is None
    assert pod(objects)["metadata"]["annotations"][STRATEGY] == "true"


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_without_an_exclusive_domain_the_job_of_the_nodes_has_no_strategy(target: str) -> None:
    assert annotations_of_job(ODD_JOB.render(target, scheduling={}), target, "node") is None


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_a_gang_scheduler_is_possible_because_jobset_creates_all_pods_at_once(target: str) -> None:
    scheduling = {**ODD_JOB.job["scheduling"], "gang": "coscheduling"}
    assert ODD_JOB.render(target, scheduling=scheduling, roles=[])
