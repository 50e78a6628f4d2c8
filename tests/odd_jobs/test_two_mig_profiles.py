"""MIG devices of two sizes in one pod."""

from __future__ import annotations

import pytest

from stepset.targets.request import TARGET_NAMES
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={
        "framework": {"kind": "torch", "launcher": "none"},
        "resources_per_node": {"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-3g.20gb": 1},
    },
    expected="stepset refuses to count the processes, and names both profiles.",
    source="NVIDIA MIG User Guide, Device Enumeration: CUDA enumerates a single compute instance",
    refused=everywhere("the devices of nvidia.com/mig-1g.5gb and nvidia.com/mig-3g.20gb differ in size"),
)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_it_is_rendered_with_a_number(target: str) -> None:
    assert agent_config(ODD_JOB.render(target, procs_per_node=2))["processes"] == 2
