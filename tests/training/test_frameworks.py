"""Each framework really trains on this machine, and its result proves that every rank took part.

`rank_sum` is an all-reduced sum of rank + 1: 10 in a world of 4, 3 in one of 2, and in no other. Every rank imports its
framework, which is what takes long: those that take longest have the world of 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stepset
from tests.training.conftest import EXAMPLES, program


def train(script: str, framework: Any, nodes: int = 2, procs: int | str = 2, **fields: Any) -> dict[str, Any]:
    """The result of a run of one of the examples."""
    job = {
        "framework": framework,
        "num_nodes": nodes,
        "procs_per_node": procs,
        "script": script,
        "deadline": "5m",
        **fields,
    }
    status = stepset.run(job, base_dir=EXAMPLES)
    assert isinstance(status.result, dict)
    return dict(status.result)


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


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_deepspeed_trains_with_zero_on_cpu(launcher: str) -> None:
    result = train("deepspeed/train.py", {"kind": "deepspeed", "launcher": launcher}, procs=1)
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (2, 3, True)
    assert result["zero_stage"] >= 1


def test_deepspeed_trains_under_mpirun() -> None:
    program("mpirun.openmpi")
    result = train("deepspeed/train.py", {"kind": "deepspeed", "launcher": "mpirun"}, procs=1)
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (2, 3, True)


def test_mlx_closes_its_ring() -> None:
    result = train("mlx/train.py", "mlx")
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (4, 10, True)


def test_mlx_runs_under_mpirun() -> None:
    program("mpirun.openmpi")
    result = train("mlx/train.py", {"kind": "mlx", "backend": "mpi"}, env={"MLX_MPI_LIBNAME": "libmpi.so.40"})
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (4, 10, True)


@pytest.mark.parametrize("launcher_as_node", [False, True])
def test_open_mpi_spans_the_nodes(launcher_as_node: bool) -> None:
    program("mpirun.openmpi")
    result = train("mpi/train.py", {"kind": "mpi", "run_launcher_as_node": launcher_as_node})
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (4, 10, True)
    assert "Open MPI" in result["library"]


def test_mpich_spans_the_nodes(mpich_program: Path) -> None:
    job = {
        "name": "mpich",
        "framework": {"kind": "mpi", "implementation": "mpich"},
        "num_nodes": 2,
        "procs_per_node": 2,
        "command": [program("mpirun.mpich"), str(mpich_program)],
        "agent": True,
        "deadline": "2m",
    }
    status = stepset.run(job)
    assert (status.result["world_size"], status.result["rank_sum"]) == (4, 10)


def test_jax_meets_at_node_0() -> None:
    result = train("jax/train.py", "jax", procs="auto")
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (2, 3, True)


def test_xgboost_trains_one_model_over_all_workers() -> None:
    result = train("xgboost/train.py", "xgboost")
    assert (result["world_size"], result["rank_sum"], result["models_equal"]) == (4, 10, True)


def test_torchtune_launches_a_recipe_of_the_job() -> None:
    framework = {"kind": "torchtune", "recipe": "recipe.py", "config": "config.yaml"}
    job = {"name": "tune", "framework": framework, "num_nodes": 2, "procs_per_node": 1, "code": "torchtune"}
    status = stepset.run({**job, "deadline": "5m"}, base_dir=EXAMPLES)
    assert (status.result["world_size"], status.result["rank_sum"]) == (2, 3)


def test_a_plain_command_runs_in_every_pod(tmp_path: Path) -> None:
    result = train("plain/train.py", "plain", procs="auto", checkpoint_dir=str(tmp_path))
    assert result["nodes"] == 2
