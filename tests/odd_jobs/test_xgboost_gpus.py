"""XGBoost with two GPUs per node, of which the job names two of eight."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import agent_config, env

ODD_JOB = OddJob(
    job={
        "framework": "xgboost",
        "num_nodes": 2,
        "resources_per_node": {"gpus": 2},
        "env": {"CUDA_VISIBLE_DEVICES": "6,7"},
    },
    expected='Each of the two workers of a node sees both GPUs, its own first, so that `device="cuda"` is its own.',
    source="dmlc/xgboost 3.3 demo/guide-python/distributed_extmem_basic.py",
)
TARGETS = pytest.mark.parametrize("target", ODD_JOB.targets)


@TARGETS
def test_the_agent_turns_the_list_for_each_worker(target: str) -> None:
    config = agent_config(ODD_JOB.render(target))
    assert (config["processes"], config["world_size"]) == (2, 4)
    assert config["process_env"]["LOCAL_RANK"] == "{local_rank}"
    assert config["process_env"]["CUDA_VISIBLE_DEVICES"] == "{devices}0,1"


def test_the_pod_has_the_jobs_list() -> None:
    assert env(ODD_JOB.render("jobset"))["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert "LOCAL_RANK" not in env(ODD_JOB.render("jobset"))
