"""Which pods contain which ranks, for a watcher without the job file."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.frameworks import make_plan
from stepset.plan.ranks import RankRange, command_is_rank, rank_ranges
from stepset.spec import parse_job


def ranges(**job: Any) -> dict[str, RankRange]:
    return rank_ranges(make_plan(parse_job({"name": "job", "num_nodes": 3, "procs_per_node": 2, **job})))


@pytest.mark.parametrize("framework", ["torch", "deepspeed", "mlx", {"kind": "torch", "launcher": "none"}])
def test_a_node_has_one_rank_for_each_process(framework: Any) -> None:
    assert ranges(framework=framework, script="train.py") == {"node": RankRange(0, 2)}


def test_roles_have_no_ranks() -> None:
    roles = [{"name": "monitor", "command": ["top"]}]
    assert ranges(framework="torch", script="train.py", roles=roles) == {"node": RankRange(0, 2)}


def test_an_mpi_launcher_has_ranks_only_if_it_is_a_node_and_then_the_last() -> None:
    mpi = {"kind": "mpi"}
    assert ranges(framework=mpi, command=["mpirun", "train"]) == {"node": RankRange(0, 2)}
    as_node = ranges(framework={**mpi, "run_launcher_as_node": True}, command=["mpirun", "train"])
    assert as_node == {"node": RankRange(0, 2), "launcher": RankRange(4, 2)}


def test_an_mpi_launcher_that_is_a_node_is_not_a_rank_itself() -> None:
    framework = {"kind": "mpi", "run_launcher_as_node": True}
    plan = make_plan(parse_job({"framework": framework, "num_nodes": 2, "command": ["bash", "run.sh"], "agent": True}))
    assert not command_is_rank(plan, plan.group("launcher"))


def test_ranks_that_the_users_launcher_starts_are_unknown() -> None:
    assert ranges(framework="torch", command=["torchrun", "train.py"]) == {}
