"""GPUs that a resource claim requests: their number is in another object."""

from __future__ import annotations

import pytest

from stepset.targets.request import TARGET_NAMES
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={
        "framework": {"kind": "torch", "launcher": "none"},
        "resources_per_node": {"cpu": 8},
        "pod_template": {
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "four-gpus"}],
            "containers": [{"name": "node", "resources": {"claims": [{"name": "gpus"}]}}],
        },
    },
    expected="stepset refuses to count the processes; before, it ran one for each CPU.",
    source="Kubernetes v1.36, Dynamic Resource Allocation",
    refused=everywhere("the number of devices of the resource claim 'gpus' is not in the job"),
)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_it_is_rendered_with_a_number(target: str) -> None:
    assert agent_config(ODD_JOB.render(target, procs_per_node=4))["processes"] == 4
