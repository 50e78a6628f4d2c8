"""A command that starts no launcher is the program of a rank: torchrun or `deepspeed` is put before the command."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from stepset.errors import BadInputError
from tests.frameworks.planned import Plan

OWN = {"kind": "deepspeed", "launcher": "deepspeed"}


def planned(command: str | None, framework: Any = "torch", **job: Any) -> Plan:
    """Returns the plan of a job with 2 nodes of 2 processes, unless `job` states otherwise."""
    entry = {} if command is None else {"command": shlex.split(command)}
    return Plan(framework, **{"num_nodes": 2, "procs_per_node": 2, **entry, **job})


def notes(command: str | None, framework: Any = "torch", **job: Any) -> list[str]:
    """Returns the notes about the command of such a job."""
    return [note for note in planned(command, framework, **job).plan.notes if "command: " in note]


def rule(command: str, framework: Any = "torch", **job: Any) -> str:
    return planned(command, framework, **job).plan.group("node").command_rule


@pytest.mark.parametrize("framework", ["torch", "deepspeed", "torchtune", {"kind": "torch", "elastic": {}}])
@pytest.mark.parametrize(
    "command",
    [
        "python3 train.py --lr 1",
        "python3 -u train.py",
        "/opt/venv/bin/python -m pkg.train",
        "python3 -c 'import train; train.main()'",
        "./train.py --epochs 3",
        "env A=1 nice -n 5 python3 train.py --loader pytorch",
        "uv run train.py",
        "uv run -m pkg.train",
        "bash -c 'cd /work && exec python3 train.py'",
        "bash -c './prepare && python3 train.py'",
        "bash -c 'python3 train.py --deepspeed_config deepspeed.json'",
        "python3 train.py --lora-rank 8 --data $(DATA)",
        "python3 train.py --strategy deepspeed",
        "python3 train_lightning.py",
        "./train --epochs 3",
    ],
)
def test_torchrun_is_put_before_the_program_of_a_rank(command: str, framework: Any) -> None:
    plan = planned(command, framework)
    group = plan.plan.group("node")
    assert plan.command() == ["torchrun", "--no-python", *shlex.split(command)]
    assert group.command_rule == "torchrun starts the ranks, because the command starts none"
    assert group.agent is not None and group.agent.wrap is not None
    assert plan.words(group.agent.wrap.launcher) == ["torchrun", "--no-python"]
    assert plan.words(group.agent.wrap.program) == shlex.split(command)
    assert notes(command, framework) == []


def test_the_launcher_of_deepspeed_is_put_before_it_too() -> None:
    command = planned("python3 train.py", OWN).command()
    assert command[0] == "deepspeed"
    assert command[-4:] == ["--no_python", "--no_local_rank", "python3", "train.py"]
    assert rule("python3 train.py", OWN) == "deepspeed starts the ranks, because the command starts none"


def test_mpirun_is_put_before_the_command_of_a_deepspeed_job_that_uses_it() -> None:
    mpi = {"kind": "deepspeed", "launcher": "mpirun"}
    assert planned("python3 train.py", mpi).command("launcher")[0] == "mpirun"
    assert planned("python3 train.py", {**mpi, "launch": "command"}).command("launcher") == ["python3", "train.py"]


@pytest.mark.parametrize("framework", ["torch", "torchtune", "deepspeed", OWN])
def test_a_field_keeps_the_command(framework: Any) -> None:
    options = framework if isinstance(framework, dict) else {"kind": framework}
    plan = planned("python3 train.py", {**options, "launch": "command"})
    group = plan.plan.group("node")
    assert plan.command() == ["python3", "train.py"]
    assert group.command_rule == "unchanged, because framework.launch is command"
    assert group.agent is not None and not group.agent.counts_ranks
    assert plan.plan.notes == ()


def test_the_field_needs_a_command_and_a_launcher() -> None:
    for framework in ("torch", "torchtune", "deepspeed"):
        with pytest.raises(BadInputError, match=r"^framework.launch: .* the job has no command; leave launch out"):
            planned(None, {"kind": framework, "launch": "command"})
    with pytest.raises(BadInputError, match="launcher 'none' starts; give one"):
        planned("python3 train.py", {"kind": "torch", "launcher": "none", "launch": "command"})


def test_a_job_of_one_rank_needs_no_launcher() -> None:
    one = {"num_nodes": 1, "procs_per_node": 1}
    assert planned("python3 train.py", **one).command() == ["python3", "train.py"]
    assert rule("python3 train.py", **one) == "unchanged, because the job has one rank"
    auto = {"num_nodes": 1, "procs_per_node": "auto"}
    assert planned("python3 train.py", **auto).command() == ["python3", "train.py"]
    assert planned("python3 train.py", **auto, resources_per_node={"gpus": 8}).command()[0] == "torchrun"


def test_without_the_agent_the_launcher_is_put_before_it_too() -> None:
    plan = planned("python3 train.py", agent=False)
    assert plan.command() == ["torchrun", "--no-python", "python3", "train.py"]
    assert plan.plan.group("node").agent is None


def test_the_program_may_be_in_the_args() -> None:
    assert planned("python3", args=["train.py"]).command() == ["torchrun", "--no-python", "python3"]
    assert planned("bash", args=["-c", "torchrun train.py"]).command() == ["bash"]
    template = {"containers": [{"name": "node", "args": ["-c", "torchrun train.py"]}]}
    assert planned("bash", args=["-c", "true"], pod_template=template).command() == ["bash"]


def test_a_command_in_the_pod_template_replaces_the_launcher() -> None:
    template = {"containers": [{"name": "node", "command": ["python3", "train.py"]}]}
    [found] = notes(None, pod_template=template)
    assert found.startswith("pod_template.containers.node.command: python3 train.py must start the 4 ranks")
    assert found.endswith("; without this command, torchrun starts the program of the job")
    assert len(notes("python3 other.py", pod_template=template)) == 1


@pytest.mark.parametrize(
    "command",
    [
        "python3 launch.py",
        "python3 -m pkg.launcher",
        "python3 -m openrlhf.cli.train_ppo_ray",
        "python3 -c 'import os; print(os.environ[\"PET_NODE_RANK\"])'",
        "python3 train.py --node_rank $(STEPSET_NODE_RANK)",
        "python3 train.py --master_addr node0",
        "python3 $(ENTRY)",
        "bash -c 'export NODE_RANK=$PET_NODE_RANK; python3 train.py'",
        "env NODE_RANK=$(STEPSET_NODE_RANK) python3 train.py",
        "bash run.sh",
        "./run.sh",
        "bash -c 'cd /work && ./run.sh'",
    ],
)
def test_a_program_that_may_start_the_ranks_is_kept_and_its_ranks_are_counted(command: str) -> None:
    plan = planned(command)
    group = plan.plan.group("node")
    assert plan.command() == shlex.split(command)
    assert group.agent is not None and (group.agent.counts_ranks, group.agent.world_size) == (True, 4)
    [note] = notes(command)
    assert note.startswith(f"command: {shlex.join(shlex.split(command)[:2])} must start the 4 ranks (num_nodes: 2, ")
    assert note.endswith("the run fails if it starts another number, and without a launcher each node runs one process")
    [alone] = notes(command, num_nodes=1)
    assert alone.endswith("without a launcher only one process runs")
    [unseen] = notes(command, agent=False)
    assert "stepset does not check this" in unseen
    assert notes(command, num_nodes=1, procs_per_node=1) == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun train.py", "torchrun"),
        ("/opt/bin/torchrun train.py", "torchrun"),
        ("env FOO=1 torchrun train.py", "torchrun"),
        ("python3 -m torch.distributed.run train.py", "python3 -m torch.distributed.run"),
        ("python3 -m debugpy --listen 5678 -m torch.distributed.run train.py", "python3 -m torch.distributed.run"),
        ("python3 entry.py torchrun train.py", "torchrun"),
        ("./entry tune run recipe", "tune run"),
        ("bash -c './prepare && torchrun train.py'", "torchrun"),
        ("bash -c 'accelerate launch t.py || exit 1'", "accelerate launch"),
        ("accelerate launch t.py", "accelerate launch"),
        ("axolotl train c.yaml", "axolotl"),
        ("llamafactory-cli train c.yaml", "llamafactory-cli"),
        ("srun python3 train.py", "srun"),
    ],
)
def test_a_command_with_a_launcher_is_kept_and_its_ranks_are_counted(command: str, name: str) -> None:
    group = planned(command).plan.group("node")
    assert planned(command).command() == shlex.split(command)
    assert group.command_rule == f"unchanged, because it starts {name}"
    assert group.agent is not None and (group.agent.counts_ranks, group.agent.world_size) == (True, 4)
    assert notes(command) == []


def test_the_worker_layer_connects_one_process_in_each_node() -> None:
    both = {"kind": "torch", "env_layer": "both"}
    assert (
        rule("python3 t.py", both, procs_per_node=1)
        == "unchanged, because framework.env_layer: both sets variables of ranks"
    )
    assert notes("python3 t.py", both, procs_per_node=1) == []
    assert planned("python3 train.py", both).command()[0] == "torchrun"
    assert planned("python3 train.py", {"kind": "torch", "env_layer": "worker"}).command()[0] == "python3"
    own = {"env": {"NODE_RANK": "$(STEPSET_NODE_RANK)", "MASTER_ADDR": "$(PET_MASTER_ADDR)"}}
    assert rule("python3 train.py", **own).startswith("unchanged, because env sets MASTER_ADDR")
    [note] = notes("python3 train.py", **own)
    assert "must start the 4 ranks" in note


def test_the_number_of_ranks_of_an_elastic_world_or_of_changed_variables_is_not_checked() -> None:
    for job in (
        {"framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 3}}},
        {"env": {"PET_NNODES": {"value": "1", "override": True}}},
    ):
        for command in ("./run.sh", None):
            settings = planned(command, job.get("framework", "torch"), env=job.get("env", {})).plan.group("node").agent
            assert settings is not None and (settings.world_size, settings.counts_ranks) == (None, False)


AFTER = "unless the default configuration file of the image requests this; give the program as script"


@pytest.mark.parametrize(
    ("flags", "lack", "remedy"),
    [
        ("", "without --multi_gpu", f"{AFTER}, or add --multi_gpu, or name"),
        ("--num_processes 1", "without --multi_gpu", f"{AFTER}, or name"),
        ("--num_machines 4 --machine_rank $(STEPSET_NODE_RANK)", "without --multi_gpu", f"{AFTER}, or add --multi_gpu"),
        ("--cpu", "with --cpu", f"{AFTER}, or name the file with --config_file"),
    ],
)
def test_accelerate_connects_the_nodes_only_by_torchrun(flags: str, lack: str, remedy: str) -> None:
    one_gpu = {"num_nodes": 4, "procs_per_node": 1, "resources_per_node": {"gpus": 1}}
    [found] = notes(f"accelerate launch {flags} t.py", **one_gpu)
    assert f"command: accelerate launch {lack} starts one process in each of the 4 nodes, and does not" in found
    assert remedy in found
    assert notes(f"accelerate launch --config_file two.yaml {flags.replace('--cpu', '')} t.py", **one_gpu) == []
    assert notes(f"accelerate launch {flags} t.py", env={"HF_HOME": "/data/hf"}, **one_gpu) == []


def test_accelerate_starts_torchrun_for_several_gpus_and_perhaps_for_an_unknown_number() -> None:
    assert notes("accelerate launch t.py", procs_per_node=8, resources_per_node={"gpus": 8}) == []
    assert notes("accelerate launch t.py", procs_per_node=8) == []
    assert len(notes("accelerate launch --cpu --num_processes 2 t.py", num_nodes=1)) == 1


def test_accelerate_without_a_launcher_of_its_own_is_connected_by_the_variables_of_the_ranks() -> None:
    none = {"kind": "torch", "launcher": "none"}
    one_gpu = {"procs_per_node": 1, "resources_per_node": {"gpus": 1}}
    assert notes("accelerate launch train.py", none, **one_gpu) == []
