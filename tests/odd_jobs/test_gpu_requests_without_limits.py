"""Requests for GPUs without limits."""

from __future__ import annotations

import pytest

from stepset.targets.request import TARGET_NAMES
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={"framework": "torch", "resources_per_node": {"requests": {"nvidia.com/gpu": 2}}},
    expected="stepset refuses them, because Kubernetes does not overcommit devices.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go, ValidateResourceRequirements",
    refused=everywhere("nvidia.com/gpu cannot be overcommitted; make request and limit equal"),
)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_limits_alone_are_the_requests_too(target: str) -> None:
    objects = ODD_JOB.render(
        target, framework={"kind": "torch", "launcher": "none"}, resources_per_node={"limits": {"nvidia.com/gpu": 2}}
    )
    assert agent_config(objects)["processes"] == 2
