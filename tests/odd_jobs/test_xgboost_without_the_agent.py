"""XGBoost with two GPUs per node and a script, without the agent, which starts the workers of a node."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import env, request

ODD_JOB = OddJob(
    job={"framework": "xgboost", "num_nodes": 2, "resources_per_node": {"gpus": 2}, "agent": False},
    expected="The job is refused; before, each node started one worker, and the tracker waited for two more.",
    source="dmlc/xgboost 3.3 src/collective/tracker.cc: the tracker waits until n_workers workers have connected",
    refused=everywhere("agent: only stepset's agent can start 2 processes per node; leave agent out, or set procs_per"),
)


def test_one_worker_per_node_needs_no_agent() -> None:
    assert env(ODD_JOB.render("jobset", procs_per_node=1))["DMLC_NUM_WORKER"] == "2"


def test_a_command_may_start_the_workers_of_a_node() -> None:
    command = ["./start-workers"]
    assert env(ODD_JOB.render("jobset", command=command))["DMLC_NUM_WORKER"] == "4"
    notes = request(**{**ODD_JOB.job, "command": command}).plan.notes
    assert "command: must start the 2 workers of each node itself, because the agent is off" in notes
