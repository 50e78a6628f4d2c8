"""Torch and frameworks on top of it train on this machine; see test_frameworks.py.

Every rank imports its framework, which is slow, so these tests do not repeat the trainings of other tests. DDP
on two nodes of two ranks is tests/airflow/test_digits_retrain.py, on one node test_elastic_and_resume.py; DeepSpeed
under its own launcher is in tests/airflow/test_examples.py, under torchrun in pods (tests/cluster/test_frameworks.py),
where TorchTune trains, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import stepset
from tests.training.conftest import program, train


@pytest.mark.smoke
def test_torch_fsdp_shards_over_all_ranks() -> None:
    result = train("torch/fsdp.py", "torch", procs=1)
    assert (result["world_size"], result["rank_sum"]) == (2, 3)
    assert len(result["held_by_rank"]) == 2
    assert max(result["held_by_rank"]) < result["parameters"], "no rank holds the whole model"


def test_torch_without_a_launcher_meets_by_its_own_variables() -> None:
    result = train("torch/no_launcher.py", {"kind": "torch", "launcher": "none"})
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (4, 10, True)
    assert result["local_ranks"] == [0, 1, 0, 1]


def test_deepspeed_trains_with_zero_under_mpirun() -> None:
    program("mpirun.openmpi")
    result = train("deepspeed/train.py", {"kind": "deepspeed", "launcher": "mpirun"}, procs=1)
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (2, 3, True)
    assert result["zero_stage"] >= 1


@pytest.mark.smoke
def test_torchtune_runs_a_recipe_of_the_users() -> None:
    framework = {"kind": "torchtune", "recipe": "recipe.py", "config": "config.yaml"}
    result = train(None, framework, procs=1, code="torchtune")
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (2, 3, True)


@pytest.mark.parametrize(
    ("example", "env"), [("accelerate", {"ACCELERATE_USE_CPU": "true"}), ("lightning", {}), ("transformers", {})]
)
def test_the_ranks_join_and_a_second_run_continues(example: str, env: dict[str, str], tmp_path: Path) -> None:
    fields = {"env": env, "checkpoint_dir": str(tmp_path / "checkpoints")}
    for epochs in (1, 2):
        result = train(f"{example}/train.py", "torch", procs=1, args=["--epochs", str(epochs)], **fields)
        assert (result["world_size"], result["rank_sum"], result["first_epoch"]) == (2, 3, epochs - 1)


def test_a_rank_that_would_train_alone_ends_with_an_error() -> None:
    with pytest.raises(stepset.TrainingFailedError) as raised:
        train("accelerate/train.py", "torch", nodes=1)
    assert raised.value.status is not None and raised.value.status.failure is not None
    assert any("this rank trains alone" in line for line in raised.value.status.failure.tail)
    note = "accelerate: without GPUs, each rank trains alone unless ACCELERATE_USE_CPU is true; add it to env"
    assert note in raised.value.status.notes
