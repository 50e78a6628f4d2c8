"""Two shares of time-sliced GPUs, which may be the same GPU."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={"framework": {"kind": "torch", "launcher": "none"}, "resources_per_node": {"nvidia.com/gpu.shared": 2}},
    expected="The node runs one process.",
    source="NVIDIA/k8s-device-plugin v0.17 README, Shared Access to GPUs: two do not imply two GPUs",
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_node_runs_one_process(target: str) -> None:
    assert agent_config(ODD_JOB.render(target))["processes"] == 1
