"""Virtual GPUs of Volcano with their memory: 4096 MiB are not 4,096 devices."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={
        "num_nodes": 2,
        "framework": {"kind": "torch", "launcher": "none"},
        "resources_per_node": {
            "volcano.sh/vgpu-number": 2,
            "volcano.sh/vgpu-memory": 4096,
            "volcano.sh/vgpu-cores": 50,
        },
    },
    expected="Each node runs two processes, one for each virtual GPU.",
    source="volcano-sh/volcano-vgpu-device-plugin, README: vgpu-memory is MiB of each of vgpu-number GPUs",
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_each_virtual_gpu_has_a_process(target: str) -> None:
    config = agent_config(ODD_JOB.render(target))
    assert (config["processes"], config["world_size"]) == (2, 4)
