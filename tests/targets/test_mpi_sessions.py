"""What ssh sessions on the nodes of an MPI job have in their environment."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.targets.render import render
from tests.targets.making import request


def session_lines(target: str, **job: Any) -> list[str]:
    objects = render(request(**{"framework": "mpi", "num_nodes": 2, "procs_per_node": 1, **job}), target)
    [config] = [each["data"]["sshd_config"] for each in objects if "sshd_config" in each.get("data", {})]
    return [line for line in config.splitlines() if line.startswith("SetEnv")]


@pytest.mark.parametrize("target", ["jobset", "trainjob", "volcano"])
def test_sessions_know_the_node_of_rank_0_whatever_mpirun_passes_on(target: str) -> None:
    host = "digits-node-0.digits" if target == "volcano" else "digits-node-0-0.digits"
    assert session_lines(target) == [f"SetEnv MASTER_ADDR={host} MASTER_PORT=29500"]


def test_a_value_of_the_job_that_sshd_cannot_read_is_left_out() -> None:
    env = {"MASTER_ADDR": {"value": "a b", "override": True}, "MASTER_PORT": {"value": "1", "override": True}}
    assert session_lines("jobset", env=env) == []
    assert session_lines("jobset", env={**env, "MASTER_ADDR": {"value": "h", "override": True}}) == [
        "SetEnv MASTER_ADDR=h MASTER_PORT=1"
    ]
