"""Torch, and what stands on it, really trains on this machine; as test_frameworks.py has it.

Every rank imports its framework, which is what takes long: those that take longest have a world of 2.
"""

from __future__ import annotations

import pytest

import stepset
from tests.training.conftest import EXAMPLES, program, train


def test_torch_ddp_trains_on_two_nodes() -> None:
    result = train("torch/train.py", "torch", args=["--epochs", "3"])
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (4, 10, True)
    assert result["accuracy"] > 0.8


def test_torch_fsdp_shards_over_all_ranks() -> None:
    result = train("torch/fsdp.py", "torch", procs=1)
    assert (result["world_size"], result["rank_sum"]) == (2, 3)
    assert len(result["held_by_rank"]) == 2
    assert max(result["held_by_rank"]) < result["parameters"], "no rank holds the whole model"


def test_torch_without_a_launcher_meets_by_its_own_variables() -> None:
    result = train("torch/no_launcher.py", {"kind": "torch", "launcher": "none"})
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (4, 10, True)
    assert result["local_ranks"] == [0, 1, 0, 1]


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_deepspeed_trains_with_zero_on_cpu(launcher: str) -> None:
    """Its own launcher: tests/airflow/test_examples.py."""
    if launcher == "mpirun":
        program("mpirun.openmpi")
    result = train("deepspeed/train.py", {"kind": "deepspeed", "launcher": launcher}, procs=1)
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (2, 3, True)
    assert result["zero_stage"] >= 1


def test_torchtune_launches_a_recipe_of_the_job() -> None:
    framework = {"kind": "torchtune", "recipe": "recipe.py", "config": "config.yaml"}
    job = {"name": "tune", "framework": framework, "num_nodes": 2, "procs_per_node": 1, "code": "torchtune"}
    status = stepset.run({**job, "deadline": "5m"}, base_dir=EXAMPLES)
    assert (status.result["world_size"], status.result["rank_sum"]) == (2, 3)
