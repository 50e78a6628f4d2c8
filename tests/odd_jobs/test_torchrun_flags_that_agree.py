"""A command whose torchrun repeats the job's numbers, and refers to stepset's variables."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import container

_COMMAND = [
    "torchrun", "--nnodes=2", "--nproc_per_node", "4", "--node-rank=$(STEPSET_NODE_RANK)",
    "--master-addr=$(PET_MASTER_ADDR)", "--master-port=29500", "train.py", "--nnodes=1",
]  # fmt: skip
ODD_JOB = OddJob(
    job={"num_nodes": 2, "procs_per_node": 4, "command": _COMMAND},
    expected="The command is unchanged; the last word is an argument of the script.",
    source="torch 2.15 distributed/run.py, get_args_parser: the words after the script are its arguments",
)


@pytest.mark.parametrize("target", ["jobset", "volcano"])
def test_the_command_is_unchanged(target: str) -> None:
    words = container(ODD_JOB.render(target, agent=False))["command"]
    assert words == _COMMAND
