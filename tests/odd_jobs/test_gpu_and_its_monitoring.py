"""Intel GPUs with the resource for monitoring, and network interfaces."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={
        "framework": {"kind": "torch", "launcher": "none"},
        "resources_per_node": {"gpu.intel.com/i915": 2, "gpu.intel.com/i915_monitoring": 1, "rdma/gpu_nic": 8},
    },
    expected="The node runs two processes, one for each GPU.",
    source="intel/intel-device-plugins-for-kubernetes 0.32 cmd/gpu_plugin: i915_monitoring is not another GPU",
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_only_the_gpus_count(target: str) -> None:
    assert agent_config(ODD_JOB.render(target))["processes"] == 2
