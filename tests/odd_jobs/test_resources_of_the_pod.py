"""Resources of the pod as a whole, with a gang scheduler that needs their sum."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import of_kind

ODD_JOB = OddJob(
    job={
        "num_nodes": 2,
        "scheduling": {"gang": "coscheduling"},
        "resources_per_node": {"requests": {"cpu": 1, "nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}},
        "pod_template": {"resources": {"requests": {"cpu": "8"}, "limits": {"cpu": "8", "memory": "8Gi"}}},
    },
    expected="The PodGroup counts the pods' requests, which replace those of their containers.",
    source="kubernetes v1.36 pkg/api/v1/resource/helpers.go (PodRequests), pkg/apis/core/v1/defaults.go",
    refused={"volcano": "scheduling.gang: Volcano itself schedules the gang, not coscheduling"},
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_pod_group_counts_them(target: str) -> None:
    group = of_kind(ODD_JOB.render(target), "PodGroup")
    assert group["spec"]["minResources"] == {"cpu": "16", "memory": "16Gi", "nvidia.com/gpu": "2"}
