"""Half of a GPU, counted in thousandths: one process, not 500."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import env, workload

ODD_JOB = OddJob(
    job={"num_nodes": 2, "framework": "torch", "resources_per_node": {"cpu": 16, "alibabacloud.com/gpu-milli": 500}},
    expected="Each node runs one process, which uses its share of the GPU.",
    source="hkust-adsl/kubernetes-scheduler-simulator pkg/type/open-gpu-share/utils/const.go: 1000 gpu-milli are a GPU",
)


@pytest.mark.parametrize("target", [target for target in ODD_JOB.targets if target != "trainjob"])
def test_the_share_has_one_process(target: str) -> None:
    assert env(ODD_JOB.render(target))["PET_NPROC_PER_NODE"] == "1"


def test_kubeflow_trainer_does_not_count_the_thousandths() -> None:
    assert workload(ODD_JOB.render("trainjob"))["spec"]["trainer"]["numProcPerNode"] == 1
