"""A job of several nodes whose command is that of one machine: `torchrun --standalone`."""

from __future__ import annotations

import pytest

from stepset.targets.request import TARGET_NAMES
from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={
        "num_nodes": 4,
        "procs_per_node": 8,
        "command": ["torchrun", "--standalone", "--nproc-per-node=8", "train.py"],
    },
    expected="The job is refused; before, each node trained alone, while validate reported 32 ranks.",
    source="torch 2.15 distributed/run.py, run: --standalone replaces the rendezvous by one at localhost:0",
    refused=everywhere("command: --standalone of torchrun would train in each of the 4 nodes alone; remove it, or set"),
)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_on_one_node_the_command_is_accepted(target: str) -> None:
    assert ODD_JOB.render(target, num_nodes=1)


def test_a_plain_job_runs_the_command_as_it_is() -> None:
    assert ODD_JOB.render("jobset", framework="plain", procs_per_node="auto")
