"""A variable that refers to one that is defined after it."""

from __future__ import annotations

from tests.odd_jobs import OddJob
from tests.targets.making import container

ODD_JOB = OddJob(
    job={"env": {"A": "$(B) $(STEPSET_NODE_RANK)", "B": "b", "C": "$(B) $$(B)"}, "args": ["$(A)"], "num_nodes": 2},
    expected="$(B) in A stays as it is, in every target; C is 'b $(B)'.",
    source="kubernetes v1.36 pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables)",
)


def test_the_kubelet_decides_about_it_in_a_statefulset() -> None:
    rows = container(ODD_JOB.render("statefulset"))["env"]
    names = [row["name"] for row in rows]
    assert {"name": "stepset_value_0", "value": "$(B)"} in rows
    assert names.index("stepset_value_0") < names.index("B")
