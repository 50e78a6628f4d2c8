"""A rack of their own for the nodes, in a run with other pods: the others must not need a rack of their own each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from stepset.run_status import Phase
from tests.cluster.many import BRIEF
from tests.cluster.runs import Runs
from tests.cluster.testbed.handle import Cluster
from tests.odd_jobs import OddJob
from tests.targets.making import of_kind, pod, replicated_job

KEY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
RACK = "cloud.example/rack"
ONLY = "scheduling.topology.exclusive: only a JobSet has it"
ODD_JOB = OddJob(
    job={
        "num_nodes": 2,
        "scheduling": {"topology": {"exclusive": RACK}},
        "roles": [{"name": "board", "command": ["true"]}, {"name": "metrics", "command": ["true"]}],
    },
    expected="Two racks suffice: one for the nodes, one for all other pods.",
    source="jobset v0.12.0 pkg/controllers/jobset_controller.go (labelAndAnnotateObject), pkg/webhooks/pod_webhook.go",
    refused={"statefulset": ONLY, "job": ONLY, "volcano": ONLY},
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_only_the_nodes_are_annotated(target: str) -> None:
    objects = ODD_JOB.render(target)
    assert str(objects).count(KEY) == 1
    if target == "jobset":
        assert replicated_job(objects)["template"]["metadata"]["annotations"] == {KEY: RACK}
    else:
        rows = of_kind(objects, "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
        node = next(row for row in rows if row["name"] == "node")
        assert node["template"]["metadata"]["annotations"] == {KEY: RACK}


def test_of_an_mpi_job_the_nodes_are_annotated_not_the_launcher() -> None:
    objects = ODD_JOB.render("jobset", framework="mpi")
    assert replicated_job(objects)["template"]["metadata"]["annotations"] == {KEY: RACK}
    assert "metadata" not in replicated_job(objects, "launcher")["template"]


def test_the_other_pods_prefer_machines_outside_the_racks_and_then_each_others_rack() -> None:
    own = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}, "podAntiAffinity": {}}
    roles = [{"name": "board", "command": ["true"], "scheduling": {"affinity": own}}]
    objects = ODD_JOB.render("jobset", roles=roles)
    affinity = pod(objects, "board")["spec"]["affinity"]
    first, second = affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (outside,) = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert (first, affinity["podAntiAffinity"]) == ({"weight": 1}, {})
    assert second["podAffinityTerm"]["topologyKey"] == RACK
    assert outside["preference"]["matchExpressions"] == [{"key": RACK, "operator": "DoesNotExist"}]
    assert "affinity" not in pod(objects)["spec"]


@pytest.fixture
def priority(cluster: Cluster) -> Iterator[str]:
    """A priority of its own: JobSet keeps only pods of the same priority away from the rack (jobset#1057).

    It is positive, because JobSet makes it the value of a label, which must not begin with a minus sign.
    """
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1 + uuid.uuid4().int % 10**6,
            "preemptionPolicy": "Never",
        }
    )
    yield name
    cluster.kubectl("delete", "priorityclass", name)


@pytest.mark.cluster
@pytest.mark.parametrize("runs", ["jobset", "trainjob"], indirect=True)
def test_on_two_machines_a_run_with_two_roles_starts(runs: Runs, priority: str) -> None:
    if runs.cluster.choice is None:
        pytest.skip("needs a cluster of two machines")
    scheduling: dict[str, Any] = {"priority_class": priority, "topology": {"exclusive": "kubernetes.io/hostname"}}
    roles = [{"name": name, "command": ["sleep", "600"]} for name in ("board", "metrics")]
    status, _ = runs.run("print('trained')", num_nodes=2, roles=roles, scheduling=scheduling, pod_template=BRIEF)
    assert status.phase is Phase.SUCCEEDED
    machines = [each["spec"]["nodeName"] for each in runs.pods()]
    assert len(machines) == 2
    assert len(set(machines)) == 1
