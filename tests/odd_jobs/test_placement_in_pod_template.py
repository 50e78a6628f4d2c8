"""The placement of the nodes in `pod_template`: a topology for Kueue, a spread, a runtime class, the host's network."""

from __future__ import annotations

from typing import Any

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import pod

TOPOLOGY = {"kueue.x-k8s.io/podset-required-topology": "cloud.example/rack"}
SPREAD = [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}]
SPEC: dict[str, Any] = {
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": SPREAD,
    "runtimeClassName": "isolated",
    "hostNetwork": True,
}
ODD_JOB = OddJob(
    job={
        "framework": "mpi",
        "num_nodes": 2,
        "roles": [{"name": "board", "command": ["true"]}],
        "pod_template": {"metadata": {"annotations": TOPOLOGY}, "spec": SPEC},
    },
    expected="Fields that place pods are those of the nodes; the other fields of pod_template apply to every pod.",
    source="docs/targets.md, Where pods run; kueue v0.18.2 pkg/scheduler/flavorassigner/tas_flavorassigner.go",
    refused=WITHOUT_LAUNCHER,
)
OTHERS = pytest.mark.parametrize("group", ["launcher", "board"])
PLACES = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")


def kueue_of(template: dict[str, Any]) -> set[str]:
    return {key for key in template["metadata"]["annotations"] if key.startswith("kueue.x-k8s.io/podset-")}


def test_the_nodes_have_all_of_it() -> None:
    template = pod(ODD_JOB.render("jobset"))
    assert SPEC.items() <= template["spec"].items()
    assert kueue_of(template) == set(TOPOLOGY)


@OTHERS
def test_other_pods_have_only_what_does_not_place_them(group: str) -> None:
    template = pod(ODD_JOB.render("jobset"), group)
    assert [field for field in PLACES if field in template["spec"]] == []
    assert (template["spec"]["runtimeClassName"], template["spec"]["hostNetwork"]) == ("isolated", True)
    assert kueue_of(template) == set()


@OTHERS
def test_the_same_holds_for_the_annotations_of_the_run(group: str) -> None:
    objects = ODD_JOB.render("jobset", annotations=TOPOLOGY, pod_template={})
    assert kueue_of(pod(objects)) == set(TOPOLOGY)
    assert kueue_of(pod(objects, group)) == set()


def test_a_launcher_that_kueue_is_to_place_with_the_nodes_keeps_the_request() -> None:
    annotations = {**TOPOLOGY, "kueue.x-k8s.io/podset-group-name": "all"}
    objects = ODD_JOB.render("jobset", pod_template={"metadata": {"annotations": annotations}})
    assert kueue_of(pod(objects, "launcher")) == kueue_of(pod(objects)) == set(annotations)
    assert kueue_of(pod(objects, "board")) == set()
