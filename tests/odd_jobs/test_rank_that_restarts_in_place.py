"""A training container that the kubelet would restart in place."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere

WORDS = "a gang is started again as a whole; use restart"
ODD_JOB = OddJob(
    job={"num_nodes": 2, "pod_template": {"containers": [{"name": "node", "restartPolicy": "OnFailure"}]}},
    expected="The job is refused: one rank would start again while the others wait for the old one.",
    source="kubernetes v1.36 k8s.io/api core/v1/types.go (Container.RestartPolicy, RestartPolicyRules)",
    refused=everywhere(f"pod_template.containers.node.restartPolicy: {WORDS}"),
)


def test_rules_for_exit_codes_are_refused_too() -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
    template = {"containers": [{"name": "node", "restartPolicyRules": [rule]}]}
    with pytest.raises(BadInputError, match=f"pod_template.containers.node.restartPolicyRules: {WORDS}"):
        ODD_JOB.render("jobset", pod_template=template)
