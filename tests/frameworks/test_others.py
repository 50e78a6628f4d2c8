"""DeepSpeed, MLX, JAX, XGBoost and plain commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.targets.pods.env import process_env
from tests.frameworks.planned import Plan

OWN = {"kind": "deepspeed", "launcher": "deepspeed"}


# --- DeepSpeed -------------------------------------------------------------------------------------------------------


def test_deepspeed_is_torchruns_by_default() -> None:
    job: dict[str, Any] = {"num_nodes": 2, "procs_per_node": 2}
    assert Plan("deepspeed", **job).plan == Plan("torch", **job).plan


@pytest.mark.parametrize(
    ("entry", "program"),
    [
        ({"script": "train.py"}, ["/stepset/code/train.py"]),
        ({"module": "pkg.train"}, ["--module", "pkg.train"]),
        ({"function": "pass"}, ["/stepset/code/stepset_main.py"]),
    ],
)
def test_its_own_launcher_runs_once_in_every_pod_without_ssh(entry: dict[str, str], program: list[str]) -> None:
    plan = Plan(OWN, num_nodes=2, procs_per_node=2, **entry)
    launcher = [
        "deepspeed",
        "--hostfile",
        "/etc/deepspeed/hostfile",
        "--no_ssh",
        "--node_rank",
        "$(STEPSET_NODE_RANK)",
        "--master_addr",
        "job-node-0-0.job",
        "--master_port",
        "29500",
    ]
    assert plan.command() == [*launcher, *program]
    assert plan.file() == "job-node-0-0.job slots=2\njob-node-0-1.job slots=2\n"
    assert plan.env() == {}
    settings = plan.plan.group("node").agent
    assert settings is not None and settings.wrap is not None
    assert plan.words(settings.wrap.launcher) == [*launcher, "--no_python", "--no_local_rank"]
    assert (plan.words(settings.wrap.program)[:2], settings.world_size) == (["python3", "-u"], 4)


def test_its_node_rank_is_set_before_the_command_uses_it() -> None:
    assert "STEPSET_NODE_RANK" in {entry.name for entry in Plan(OWN).plan.group("node").env}


# --- MLX -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "procs"), [(2, 1), (1, 2), (3, 2)])
def test_an_mlx_ring_names_every_rank_in_order(nodes: int, procs: int) -> None:
    plan = Plan("mlx", num_nodes=nodes, procs_per_node=procs)
    assert json.loads(plan.file()) == [
        [f"job-node-0-{node}.job:{32323 + local}"] for node in range(nodes) for local in range(procs)
    ]
    assert plan.env() == {
        "MLX_RANK": "<rank>" if procs > 1 else "<pod index>",
        "MLX_HOSTFILE": "/etc/mlx/hostfile.json",
    }
    settings = plan.plan.group("node").agent
    assert settings is not None and (settings.processes, settings.world_size) == (procs, nodes * procs)
    assert plan.plan.ports == {f"ring-{local}": 32323 + local for local in range(procs)}


def test_one_rank_does_not_form_a_ring() -> None:
    plan = Plan("mlx")
    assert (plan.env(), plan.plan.files, plan.plan.ports) == ({}, (), {})


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_variables_of_a_ring_are_reserved_even_if_not_set(nodes: int) -> None:
    for name in ("MLX_RANK", "MLX_HOSTFILE"):
        with pytest.raises(BadInputError, match=f"^env.{name}: reserved, because mlx jobs get it"):
            Plan("mlx", num_nodes=nodes, env={name: "0"})


# --- JAX -------------------------------------------------------------------------------------------------------------


def test_jax_runs_one_process_a_node() -> None:
    plan = Plan("jax", num_nodes=4, resources_per_node={"gpus": 8}, network={"subdomain": "ring", "port": 1234})
    assert plan.env() == {
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "<pod index>",
        "JAX_COORDINATOR_ADDRESS": "job-node-0-0.ring:1234",
    }
    settings = plan.plan.group("node").agent
    assert settings is not None and (settings.processes, settings.world_size) == (1, 4)
    assert plan.plan.notes == ()


def test_several_processes_for_jax_are_ignored_with_a_note() -> None:
    plan = Plan("jax", procs_per_node=4).plan
    assert plan.world.procs_per_node == 1
    assert plan.notes == ("procs_per_node: jax runs one process per node, which uses all its devices; 4 is ignored",)


# --- XGBoost ---------------------------------------------------------------------------------------------------------


def test_xgboost_runs_a_worker_for_every_accelerator() -> None:
    plan = Plan("xgboost", num_nodes=2, resources_per_node={"gpus": 4})
    assert plan.env() == {
        "DMLC_TRACKER_URI": "job-node-0-0.job",
        "DMLC_TRACKER_PORT": "29500",
        "DMLC_TASK_ID": "<rank>",
        "DMLC_NUM_WORKER": "8",
        "LOCAL_RANK": "<local rank>",
        "CUDA_VISIBLE_DEVICES": "<devices, its own first>",
    }
    settings = plan.plan.group("node").agent
    assert settings is not None and (settings.processes, settings.world_size) == (4, 8)
    assert plan.in_manifest("DMLC_TASK_ID") == "<pod index>"  # what the reference writes


def test_xgboost_rejects_an_amount_of_memory_as_the_number_of_devices() -> None:
    """The list of 17 thousand million devices would not fit into the memory of this process."""
    with pytest.raises(BadInputError, match=r"17179869184 x nvidia\.com/gpu are more than 4096 devices"):
        Plan("xgboost", procs_per_node=2, resources_per_node={"gpus": "16Gi"})


def test_xgboost_counts_cpus_only_if_requested() -> None:
    assert Plan("xgboost", num_nodes=3, resources_per_node={"cpu": 8}).env()["DMLC_NUM_WORKER"] == "3"
    assert (
        Plan("xgboost", num_nodes=3, procs_per_node="cpu", resources_per_node={"cpu": 8}).env()["DMLC_NUM_WORKER"]
        == "24"
    )


@pytest.mark.parametrize(
    "entry", [{"script": "train.py"}, {"module": "pkg.train"}, {"function": "pass"}, {"command": ["bash", "run.sh"]}]
)
def test_several_workers_need_the_agent(entry: dict[str, str]) -> None:
    with pytest.raises(BadInputError, match=r"^agent: only stepset's agent can start 2 processes per node; leave"):
        Plan("xgboost", resources_per_node={"gpus": 2}, agent=False, **entry)
    alone = Plan("xgboost", num_nodes=2, agent=False, **entry)
    assert (alone.env()["DMLC_TASK_ID"], alone.env()["DMLC_NUM_WORKER"]) == ("<pod index>", "2")


def test_the_only_worker_of_a_node_sees_the_devices_of_its_pod() -> None:
    job: dict[str, Any] = {"num_nodes": 2, "resources_per_node": {"gpus": 1}, "command": ["python", "a.py"]}
    plan = Plan("xgboost", **job)
    assert plan.env()["LOCAL_RANK"] == "<local rank>"
    assert plan.in_manifest("LOCAL_RANK") is None, "the pod has the variables of the reference only"
    assert "CUDA_VISIBLE_DEVICES" not in plan.env()
    assert "LOCAL_RANK" not in Plan("xgboost", agent=False, **job).env()


@pytest.mark.parametrize(
    ("resources", "procs", "listed"),
    [
        ({"gpus": 4}, "auto", "{devices}0,1,2,3"),
        ({"gpus": 4}, 2, "{devices}0,1,2,3"),
        ({"amd.com/gpu": 2}, "auto", "{devices}0,1"),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000}, "auto", "{devices}0,1"),
        ({"nvidia.com/mig-1g.5gb": 3}, "auto", "{devices}"),  # indexes do not name MIG devices
        ({"gpu.intel.com/xe": 2}, "auto", "{devices}"),
        ({}, 2, "{devices}"),
    ],
)
def test_the_agent_knows_the_devices_of_a_pod(resources: dict[str, Any], procs: Any, listed: str) -> None:
    plan = Plan("xgboost", procs_per_node=procs, resources_per_node=resources)
    env = process_env(plan.plan.group("node").env, plan.names)
    assert (env["CUDA_VISIBLE_DEVICES"], env["LOCAL_RANK"]) == (listed, "{local_rank}")


def test_the_job_may_name_the_devices_of_a_pod() -> None:
    own = {"CUDA_VISIBLE_DEVICES": "2,3"}
    plan = Plan("xgboost", resources_per_node={"gpus": 2}, env=own)
    assert plan.in_manifest("CUDA_VISIBLE_DEVICES") == "2,3"
    assert plan.env()["CUDA_VISIBLE_DEVICES"] == "<devices, its own first>"
    [entry] = [e for e in plan.plan.group("node").env if e.name == "CUDA_VISIBLE_DEVICES"]
    assert entry.rule.endswith("; derived from the job's value")
    same = {"CUDA_VISIBLE_DEVICES": {"value": "2", "override": True}}
    assert Plan("xgboost", resources_per_node={"gpus": 2}, env=same).env()["CUDA_VISIBLE_DEVICES"] == "2"
    template = {"containers": [{"name": "node", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "2,3"}]}]}
    assert Plan("xgboost", resources_per_node={"gpus": 2}, pod_template=template).plan


def test_a_secret_cannot_name_the_devices_of_a_pod() -> None:
    with pytest.raises(BadInputError, match=r"^env\.CUDA_VISIBLE_DEVICES: reserved"):
        Plan("xgboost", procs_per_node=2, env={"CUDA_VISIBLE_DEVICES": {"secret": "a", "key": "b"}})


def test_the_agent_selects_a_mig_device_for_each_worker() -> None:
    plan = Plan("xgboost", resources_per_node={"nvidia.com/mig-1g.5gb": 2}, command=["python", "a.py"])
    assert plan.plan.notes == ()


# --- plain -----------------------------------------------------------------------------------------------------------


def test_a_plain_command_gets_no_training_environment() -> None:
    plan = Plan("plain", num_nodes=3, command=["hostname"], env={"A": "1"})
    assert plan.env() == {"A": "1"}
    assert (plan.command(), plan.plan.ports, plan.plan.group("node").ports) == (["hostname"], {}, ())
    assert plan.plan.success.count == 3


def test_pods_of_a_plain_command_do_not_wait_for_each_other() -> None:
    """The name of a pod that has ended does not resolve: a pod that starts later would wait for it forever."""
    settings = Plan("plain", num_nodes=3, script="x.py").plan.group("node").agent
    assert settings is not None
    assert settings.wait_for == ()


def test_a_plain_command_may_run_several_times_in_a_pod() -> None:
    plan = Plan("plain", procs_per_node=2, script="x.py").plan
    settings = plan.group("node").agent
    assert settings is not None and settings.processes == 2
    assert plan.world.size == 2
