"""8 GiB of one GPU, beside 16 CPUs: one process, not 8 and not 16."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import env, workload

ODD_JOB = OddJob(
    job={"num_nodes": 2, "framework": "torch", "resources_per_node": {"cpu": 16, "aliyun.com/gpu-mem": 8}},
    expected="Each node runs one process, which uses its share of the GPU.",
    source="kubeflow/arena pkg/apis/types: aliyun.com/gpu-mem is GPU memory",
)


@pytest.mark.parametrize("target", [target for target in ODD_JOB.targets if target != "trainjob"])
def test_the_share_has_one_process(target: str) -> None:
    assert env(ODD_JOB.render(target))["PET_NPROC_PER_NODE"] == "1"


def test_kubeflow_trainer_does_not_count_the_memory() -> None:
    assert workload(ODD_JOB.render("trainjob"))["spec"]["trainer"]["numProcPerNode"] == 1
