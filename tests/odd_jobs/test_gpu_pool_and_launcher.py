"""MPI on a pool of machines with GPUs: its selector must not reach the launcher, which requests no GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import pod

POOL = {"cloud.google.com/gke-nodepool": "h100"}
GPUS: dict[str, Any] = {"resources_per_node": {"gpus": 8}}
ODD_JOB = OddJob(
    job={
        "framework": "mpi",
        "num_nodes": 2,
        **GPUS,
        "scheduling": {"node_selector": POOL},
        "roles": [{"name": "prepare", "command": ["true"], "scheduling": {"node_selector": {"disk": "ssd"}}}],
    },
    expected="Only the nodes have the pool's selector; launcher and roles have what the job gives them.",
    source="kubernetes v1.36 plugin/pkg/admission/extendedresourcetoleration: pods with GPUs tolerate the pool's taint",
    refused=WITHOUT_LAUNCHER,
)
TARGETS = pytest.mark.parametrize("target", ODD_JOB.targets)


def selectors(target: str, **more: Any) -> dict[str, Any]:
    objects = ODD_JOB.render(target, **more)
    return {name: pod(objects, name)["spec"].get("nodeSelector") for name in ("node", "launcher", "prepare")}


@TARGETS
def test_only_the_nodes_have_the_selector(target: str) -> None:
    assert selectors(target) == {"node": POOL, "launcher": None, "prepare": {"disk": "ssd"}}


@TARGETS
def test_a_launcher_has_its_own_placement(target: str) -> None:
    own = {"node_selector": {"pool": "cpu"}, "tolerations": [{"key": "cpu", "operator": "Exists"}]}
    objects = ODD_JOB.render(target, scheduling={"node_selector": POOL, "launcher": own})
    spec = pod(objects, "launcher")["spec"]
    assert (spec["nodeSelector"], spec["tolerations"]) == (own["node_selector"], own["tolerations"])
    assert "tolerations" not in pod(objects)["spec"]


@TARGETS
def test_a_launcher_that_is_a_node_is_placed_as_one(target: str) -> None:
    framework = {"kind": "mpi", "run_launcher_as_node": True}
    assert selectors(target, framework=framework) == {"node": POOL, "launcher": POOL, "prepare": {"disk": "ssd"}}


@TARGETS
def test_the_priority_is_that_of_all_pods(target: str) -> None:
    objects = ODD_JOB.render(target, scheduling={"priority_class": "high"})
    assert {pod(objects, name)["spec"]["priorityClassName"] for name in ("node", "launcher", "prepare")} == {"high"}
