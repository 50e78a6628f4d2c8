"""XGBoost with two GPUs per node and a script, without the agent, which starts the workers of a node."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import agent_config, env

ODD_JOB = OddJob(
    job={"framework": "xgboost", "num_nodes": 2, "resources_per_node": {"gpus": 2}, "agent": False},
    expected="The job is refused; before, each node started one worker, and the tracker waited for two more.",
    source="dmlc/xgboost 3.3 src/collective/tracker.cc: the tracker waits until n_workers workers have connected",
    refused=everywhere("agent: only stepset's agent can start 2 processes per node; leave agent out, or set procs_per"),
)


def test_one_worker_per_node_needs_no_agent() -> None:
    assert env(ODD_JOB.render("jobset", procs_per_node=1))["DMLC_NUM_WORKER"] == "2"


@pytest.mark.parametrize("command", [["python3", "train.py"], ["./start-workers"], ["bash", "-c", "./a & ./b"]])
@pytest.mark.parametrize("agent", [False, "auto"])
def test_a_command_cannot_start_the_workers_of_a_node_unseen(command: list[str], agent: Any) -> None:
    if command[0] == "python3" and agent == "auto":
        assert agent_config(ODD_JOB.render("jobset", command=command, agent=agent))["processes"] == 2
        return
    with pytest.raises(BadInputError, match=r"^agent: only stepset's agent can start 2 processes per node; "):
        ODD_JOB.render("jobset", command=command, agent=agent)


def test_a_command_that_starts_the_workers_itself_states_their_number() -> None:
    more = {"procs_per_node": 1, "env": {"DMLC_NUM_WORKER": {"value": "4", "override": True}}}
    assert env(ODD_JOB.render("jobset", command=["./start-workers"], **more))["DMLC_NUM_WORKER"] == "4"
