"""Torch: exactly one layer of variables for each launcher, and a world of fixed or changing size."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.plan.model import World
from tests.frameworks.planned import Plan

NONE = {"kind": "torch", "launcher": "none"}
ELASTIC = {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 3}}
PET = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
WORKER = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


# --- torchrun, fixed size --------------------------------------------------------------------------------------------


def test_torchrun_gets_only_its_own_layer() -> None:
    plan = Plan("torch", num_nodes=2, procs_per_node=4)
    assert plan.env() == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "<pod index>",
        "PET_MASTER_ADDR": "job-node-0-0.job",
        "PET_MASTER_PORT": "29500",
    }
    assert plan.plan.world == World(2, 4)
    assert plan.plan.ports == {"master": 29500}
    assert plan.plan.group("node").ports == ("master",)


@pytest.mark.parametrize(
    ("entry", "command"),
    [
        ({"script": "src/train.py"}, ["torchrun", "/stepset/code/train.py"]),
        ({"script": "src/train.py", "code": "src"}, ["torchrun", "/stepset/code/train.py"]),
        ({"script": "src/a/train.py", "code": "src"}, ["torchrun", "/stepset/code/a/train.py"]),
        ({"module": "pkg.train"}, ["torchrun", "-m", "pkg.train"]),
        ({"function": "pass"}, ["torchrun", "/stepset/code/stepset_main.py"]),
        ({"command": ["torchrun", "--tee", "3", "x.py"]}, ["torchrun", "--tee", "3", "x.py"]),
        ({"command": ["python", "x.py"]}, ["python", "x.py"]),
    ],
)
def test_torchrun_starts_the_jobs_program(entry: dict[str, Any], command: list[str]) -> None:
    plan = Plan("torch", args=["--epochs", "3"], **entry)
    assert plan.command() == command
    assert plan.words(plan.plan.group("node").args) == ["--epochs", "3"]


def test_the_agent_wraps_each_rank_that_torchrun_starts() -> None:
    settings = Plan("torch", num_nodes=2).plan.group("node").agent
    assert settings is not None and settings.wrap is not None
    plan = Plan("torch", num_nodes=2)
    assert plan.words(settings.wrap.launcher) == ["torchrun", "--no-python"]
    assert plan.words(settings.wrap.program) == ["python3", "-u", "/stepset/code/train.py"]
    assert settings.wait_for == ("node",)


def test_the_users_command_is_unchanged() -> None:
    settings = Plan("torch", command=["torchrun", "x.py"]).plan.group("node").agent
    assert settings is not None and settings.wrap is None
    assert Plan("torch", command=["bash", "run.sh"]).plan.group("node").agent is None
    assert Plan("torch", command=["torchrun", "x.py"], agent=False).plan.group("node").agent is None


def test_the_masters_address_contains_the_subdomain_and_the_port() -> None:
    env = Plan("torch", network={"subdomain": "ring", "port": 1234}).env()
    assert (env["PET_MASTER_ADDR"], env["PET_MASTER_PORT"]) == ("job-node-0-0.ring", "1234")


@pytest.mark.parametrize("name", PET)
@pytest.mark.parametrize("framework", ["torch", ELASTIC])
def test_variables_that_torchrun_reads_are_reserved(framework: Any, name: str) -> None:
    with pytest.raises(BadInputError, match=f"^env.{name}: reserved, because torch jobs get it from stepset"):
        Plan(framework, env={name: "1"})
    taken = Plan(framework, env={name: {"value": "1", "override": True}})
    assert taken.env()[name] == "1"


def test_the_job_can_set_other_variables_of_torchrun() -> None:
    env = {"PET_RDZV_ID": "x", "PET_LOG_DIR": "/logs", "MASTER_ADDR": "x", "RANK": "0", "WORLD_SIZE": "9"}
    assert env.items() <= Plan("torch", env=env).env().items()


# --- torchrun, elastic -----------------------------------------------------------------------------------------------


def test_an_elastic_world_meets_at_a_store_on_node_0() -> None:
    plan = Plan({"kind": "torch", "elastic": {"min_nodes": 2, "max_nodes": 4}}, num_nodes=3, procs_per_node=2)
    assert plan.env() == {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PET_NNODES": "2:4",
        "PET_NPROC_PER_NODE": "2",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "job-node-0-0.job:29500",
        "PET_RDZV_ID": "<random for each run>",
        "PET_RDZV_CONF": "is_host=<1 in pod 0, else 0>",
        "PET_MAX_RESTARTS": "3",
    }
    assert plan.plan.world.elastic == (2, 4)


def test_a_manifest_never_contains_an_empty_rendezvous_setting() -> None:
    assert Plan(ELASTIC).in_manifest("PET_RDZV_CONF") is None
    with_settings = Plan({"kind": "torch", "elastic": {"rdzv_conf": {"read_timeout": 60, "join_timeout": "90"}}})
    assert with_settings.in_manifest("PET_RDZV_CONF") == "read_timeout=60,join_timeout=90"
    assert with_settings.env()["PET_RDZV_CONF"] == "is_host=<1 in pod 0, else 0>,read_timeout=60,join_timeout=90"


@pytest.mark.parametrize(("low", "nodes", "success"), [(2, 4, (1, True)), (2, 2, (2, False)), (4, 4, (4, False))])
def test_an_elastic_world_that_may_shrink_succeeds_with_node_0(low: int, nodes: int, success: tuple[int, bool]) -> None:
    rule = Plan({"kind": "torch", "elastic": {"min_nodes": low, "max_nodes": 4}}, num_nodes=nodes).plan.success
    assert (rule.group, (rule.count, rule.first)) == ("node", success)


@pytest.mark.parametrize("max_restarts", [0, 3])
def test_torchrun_restarts_ranks_of_an_elastic_world_also_when_only_a_node_joins(max_restarts: int) -> None:
    settings = Plan({"kind": "torch", "elastic": {"max_restarts": max_restarts}}).plan.group("node").agent
    assert settings is not None and settings.launcher_restarts


def test_an_elastic_world_needs_the_agent_to_identify_node_0() -> None:
    own = {**ELASTIC, "launch": "command"}
    for framework, job in ((own, {"command": ["bash", "run.sh"]}), (ELASTIC, {"agent": False})):
        with pytest.raises(BadInputError, match=r"^agent: only stepset's agent can set PET_RDZV_CONF, which differs"):
            Plan(framework, **job)
    assert Plan(own, command=["bash", "run.sh"], agent=True).plan.group("node").agent is not None


# --- no launcher -----------------------------------------------------------------------------------------------------


def test_a_script_without_a_launcher_gets_the_worker_layer_in_processes() -> None:
    plan = Plan(NONE, num_nodes=2, procs_per_node=4)
    assert plan.env() == {
        "MASTER_ADDR": "job-node-0-0.job",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "8",
        "RANK": "<rank>",
        "LOCAL_RANK": "<local rank>",
        "LOCAL_WORLD_SIZE": "4",
    }
    settings = plan.plan.group("node").agent
    assert settings is not None and (settings.processes, settings.world_size) == (4, 8)
    assert plan.command() == ["python3", "/stepset/code/train.py"]


def test_one_process_a_pod_needs_no_agent() -> None:
    plan = Plan(NONE, num_nodes=3, procs_per_node=1, agent=False)
    assert (plan.env()["RANK"], plan.env()["LOCAL_RANK"], plan.env()["WORLD_SIZE"]) == ("<pod index>", "0", "3")


def test_several_processes_a_pod_need_the_agent() -> None:
    with pytest.raises(
        BadInputError, match=r"^agent: only stepset's agent can start 2 processes per node; leave agent"
    ):
        Plan(NONE, procs_per_node=2, agent=False)
    with pytest.raises(BadInputError, match=r"set agent: true if the image of 'bash' has python3"):
        Plan(NONE, procs_per_node=2, command=["bash", "run.sh"])


# --- both layers -----------------------------------------------------------------------------------------------------


def test_both_layers_are_set_if_requested() -> None:
    without = Plan({**NONE, "env_layer": "both"}, num_nodes=2, procs_per_node=2).env()
    assert set(without) == {*PET, *WORKER}
    assert (without["PET_NNODES"], without["WORLD_SIZE"]) == ("2", "4")


def test_beside_torchrun_the_worker_layer_is_the_pods() -> None:
    one = Plan({"kind": "torch", "env_layer": "both"}, num_nodes=2, procs_per_node=1).env()
    assert set(one) == {*PET, "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}
    assert one["RANK"] == "<pod index>"
    several = Plan({"kind": "torch", "env_layer": "both"}, num_nodes=2, procs_per_node=4).env()
    assert several["WORLD_SIZE"] == "8"
    assert "RANK" not in several  # four ranks start in this pod, and torchrun gives each its own


def test_the_worker_layer_alone_is_for_a_command_that_reads_it() -> None:
    framework = {"kind": "torch", "env_layer": "worker"}
    assert not set(PET) & set(Plan(framework, num_nodes=2, command=["python", "x.py"]).env())
    with pytest.raises(BadInputError, match=r"^framework\.env_layer: 'worker' leaves torchrun without the other nodes"):
        Plan(framework, num_nodes=2)


def test_an_elastic_world_has_no_worker_layer_to_count() -> None:
    with pytest.raises(BadInputError, match=r"^framework\.env_layer: the worker layer counts processes"):
        Plan({**ELASTIC, "env_layer": "both"})


# --- stepset's own variables ------------------------------------------------------------------------------------------


def test_every_process_gets_the_identity_of_its_run() -> None:
    plan = Plan("torch", num_nodes=2, checkpoint_dir="/ckpt")
    own = {e.name: plan.words((e.value,))[0] for e in plan.plan.group("node").env if e.name.startswith("STEPSET_")}  # type: ignore[arg-type]  # all Texts
    assert own == {
        "STEPSET_JOB": "job",
        "STEPSET_RUN": "job",
        "STEPSET_NODE_RANK": "<pod index>",
        "STEPSET_NUM_NODES": "2",
        "STEPSET_ATTEMPT": "<attempt>",
        "STEPSET_RESULT_FILE": "/stepset/run/result",
        "STEPSET_CHECKPOINT_DIR": "/ckpt",
    }


def test_without_the_agent_no_result_file_is_set() -> None:
    names = {e.name for e in Plan("torch", agent=False, script="x.py").plan.group("node").env}
    assert "STEPSET_RESULT_FILE" not in names and "STEPSET_CHECKPOINT_DIR" not in names
