"""Probes of the training container, for a training that serves metrics or health."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob
from tests.targets.making import container

PROBES = {
    "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
    "livenessProbe": {"httpGet": {"path": "/alive", "port": 8080}},
    "startupProbe": {"exec": {"command": ["test", "-e", "/tmp/started"]}},
}
WORDS = "a pod of a StatefulSet is Ready when its rank has ended, and then only waits"
ODD_JOB = OddJob(
    job={"num_nodes": 2, "pod_template": {"containers": [{"name": "node", **PROBES}]}},
    expected="All pods have the probes, except those of a StatefulSet, where the kubelet would restart waiting pods.",
    source="kubernetes v1.36 pkg/kubelet/prober/worker.go; docs/targets.md, statefulset",
    refused={"statefulset": f"pod_template.containers.node.readinessProbe: {WORDS}"},
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_probes_are_unchanged(target: str) -> None:
    node = container(ODD_JOB.render(target))
    assert {name: node[name] for name in PROBES} == PROBES


@pytest.mark.parametrize("probe", PROBES)
def test_a_stateful_set_refuses_each_probe(probe: str) -> None:
    template = {"containers": [{"name": "node", probe: PROBES[probe]}]}
    with pytest.raises(BadInputError, match=f"pod_template.containers.node.{probe}: {WORDS}"):
        ODD_JOB.render("statefulset", pod_template=template)
