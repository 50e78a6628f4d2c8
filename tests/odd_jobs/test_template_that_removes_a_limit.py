"""A pod template that removes the GPUs of the job with null."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import container, env, workload

ODD_JOB = OddJob(
    job={
        "framework": "torch",
        "resources_per_node": {"requests": {"cpu": 6}, "limits": {"nvidia.com/gpu": 2}},
        "pod_template": {"containers": [{"name": "node", "resources": {"limits": {"nvidia.com/gpu": None}}}]},
    },
    expected="The pods request no GPU, and each node runs one process for each CPU.",
    source="docs/targets.md: null removes an entry; kubernetes, strategic merge patch",
)


@pytest.mark.parametrize("target", [target for target in ODD_JOB.targets if target != "trainjob"])
def test_the_removed_gpus_are_not_counted(target: str) -> None:
    objects = ODD_JOB.render(target)
    assert container(objects)["resources"].get("limits") in (None, {})
    assert env(objects)["PET_NPROC_PER_NODE"] == "6"


def test_kubeflow_trainer_gets_no_gpus() -> None:
    trainer = workload(ODD_JOB.render("trainjob"))["spec"]["trainer"]
    assert trainer["numProcPerNode"] == 6
    assert "nvidia.com/gpu" not in str(trainer)
