"""What ssh sessions on the nodes of an MPI job have in their environment."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.rendering import render
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


def own_address(value: Any, **env: Any) -> dict[str, Any]:
    return {**env, "MASTER_ADDR": {"value": value, "override": True}}


@pytest.mark.parametrize("target", ["jobset", "trainjob", "volcano"])
@pytest.mark.parametrize(
    ("env", "host"),
    [
        (own_address("$(HEAD)", HEAD="head.example"), "head.example"),
        (own_address("$(HEAD).$(ZONE)", ZONE="z1", HEAD="h-$(ZONE)"), "h-z1.z1"),
        (own_address("$$(HEAD)", HEAD="head.example"), "$(HEAD)"),
        (own_address("$(STEPSET_RUN)-head"), "digits-head"),
    ],
)
def test_references_in_a_value_of_the_job_are_replaced_because_sshd_does_not_replace_them(
    target: str, env: dict[str, Any], host: str
) -> None:
    assert session_lines(target, env=env) == [f"SetEnv MASTER_ADDR={host} MASTER_PORT=29500"]


@pytest.mark.parametrize(
    "env",
    [
        own_address("$(HEAD)", HEAD={"secret": "cluster", "key": "head"}),
        own_address("$(HEAD)", HEAD={"field": "status.hostIP"}),
        own_address("$(HEAD)", INNER={"secret": "cluster", "key": "head"}, HEAD="a-$(INNER)"),
        own_address("$(KUBERNETES_SERVICE_HOST)"),
    ],
)
def test_a_value_that_is_unknown_before_the_pod_exists_is_left_out(env: dict[str, Any]) -> None:
    assert session_lines("jobset", env=env) == ["SetEnv MASTER_PORT=29500"]


def test_a_value_may_refer_to_a_variable_that_the_pod_template_replaces() -> None:
    template = {"spec": {"containers": [{"name": "node", "env": [{"name": "HEAD", "value": "b"}]}]}}
    env = own_address("$(HEAD)", HEAD="a")
    assert session_lines("jobset", env=env, pod_template=template) == ["SetEnv MASTER_ADDR=b MASTER_PORT=29500"]
