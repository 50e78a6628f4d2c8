"""A fixed world whose torchrun restarts ranks on all nodes, because it uses a c10d rendezvous of its own."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import container

_COMMAND = [
    "torchrun", "--nnodes=2", "--nproc-per-node=4", "--max-restarts=3", "--rdzv-id=7", "--rdzv-backend=c10d",
    "--rdzv-endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT)", "train.py",
]  # fmt: skip
ODD_JOB = OddJob(
    job={"num_nodes": 2, "procs_per_node": 4, "command": _COMMAND},
    expected="The job is refused unless each round has a store of its own; else nodes wait forever after a restart.",
    source="torch 2.15 distributed/run.py, 'Fault tolerant', and elastic/rendezvous/dynamic_rendezvous.py",
    refused=everywhere("command: --max-restarts=3 of torchrun would make the nodes wait for each other forever"),
)


@pytest.mark.parametrize("target", ["jobset", "volcano"])
def test_with_a_store_for_each_round_the_command_is_unchanged(target: str) -> None:
    objects = ODD_JOB.render(target, env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, agent=False)
    assert container(objects)["command"] == _COMMAND


def test_the_elastic_world_of_the_remedy_is_legal() -> None:
    framework = {"kind": "torch", "elastic": {"min_nodes": 2, "max_nodes": 2, "max_restarts": 3}}
    assert ODD_JOB.render("jobset", framework=framework, command=["torchrun", "train.py"])
