"""Half of each of two GPUs, which the pod requests by annotations only."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={
        "framework": {"kind": "torch", "launcher": "none"},
        "resources_per_node": {"cpu": 8},
        "annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
    },
    expected="The node runs two processes, one for each GPU of which it gets a share.",
    source="KAI-scheduler pkg/common/constants: gpu-fraction, gpu-fraction-num-devices",
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_each_shared_gpu_has_a_process(target: str) -> None:
    assert agent_config(ODD_JOB.render(target))["processes"] == 2
