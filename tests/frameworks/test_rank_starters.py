"""A command that replaces torchrun must start the ranks. A program that may not do this gets a note."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tests.frameworks.planned import Plan

OWN = {"kind": "deepspeed", "launcher": "deepspeed"}
UNLESS = "unless the program itself starts the ranks and connects the nodes"


def notes(command: str | None, framework: Any = "torch", **job: Any) -> list[str]:
    """Returns the notes about the command of a job with 2 nodes of 2 processes, unless `job` states otherwise."""
    entry = {} if command is None else {"command": shlex.split(command)}
    fields = {"num_nodes": 2, "procs_per_node": 2, **entry, **job}
    return [note for note in Plan(framework, **fields).plan.notes if "command: " in note]


@pytest.mark.parametrize("framework", ["torch", "deepspeed", {"kind": "torch", "elastic": {}}])
def test_a_python_script_starts_no_torchrun(framework: Any) -> None:
    assert notes("python3 train.py --lr 1", framework) == [
        "command: python3 train.py starts 2 processes, one in each node, instead of the 4 ranks (num_nodes: 2,"
        f" procs_per_node: 2), {UNLESS}; torchrun starts the ranks if you give script: train.py instead of command"
    ]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python3 -u train.py", "python3 -u train.py starts 2 processes"),
        ("/opt/venv/bin/python -m pkg.train", "if you give module: pkg.train instead of command"),
        ("python3 -c 'import train; train.main()'", "if you give a script instead of command"),
        ("./train.py --epochs 3", "./train.py starts 2 processes"),
        ("env A=1 nice -n 5 python3 train.py --loader pytorch", "python3 train.py starts 2 processes"),
        ("uv run train.py", "train.py starts 2 processes"),
        ("uv run -m pkg.train", "give module: pkg.train"),
        ("bash -c 'cd /work && exec python3 train.py'", "python3 train.py starts 2 processes"),
        ("python3 train.py --lora-rank 8 --data $(DATA)", "python3 train.py starts 2 processes"),
    ],
)
def test_every_form_of_a_python_program_is_recognised(command: str, words: str) -> None:
    [found] = notes(command)
    assert found.startswith("command: ") and words in found
    assert notes(command, {"kind": "torch", "launcher": "none"}, agent=True) == []
    assert notes(command, "plain", agent=True) == []


def test_on_one_node_a_python_program_is_one_process() -> None:
    [found] = notes("python3 train.py", num_nodes=1)
    assert "python3 train.py starts 1 process instead of the 2 ranks (num_nodes: 1, procs_per_node: 2)" in found
    assert notes("python3 train.py", num_nodes=1, procs_per_node=1) == []
    assert len(notes("python3 train.py", num_nodes=1, procs_per_node="auto", resources_per_node={"gpus": 8})) == 1


def test_the_program_may_be_in_the_args() -> None:
    [found] = notes("python3", args=["train.py"])
    assert "command: python3 train.py starts 2 processes" in found


def test_the_launcher_of_deepspeed_is_replaced_too() -> None:
    [found] = notes("python3 train.py", OWN)
    assert found.endswith("deepspeed starts the ranks if you give script: train.py instead of command")
    assert notes("python3 train.py", {"kind": "deepspeed", "launcher": "mpirun"}) == []


def test_a_command_in_the_pod_template_replaces_the_launcher_of_a_script() -> None:
    template = {"containers": [{"name": "node", "command": ["python3", "train.py"]}]}
    [found] = notes(None, pod_template=template)
    assert found.startswith("pod_template.containers.node.command: python3 train.py starts 2 processes")
    assert found.endswith("; without this command, torchrun starts the program of the job")


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
        "./train --epochs 3",
        "bash run.sh",
        "bash -c './prepare && python3 train.py'",
        "axolotl train c.yaml",
    ],
)
def test_a_program_that_may_start_the_ranks_gets_another_note(command: str) -> None:
    [note] = notes(command)
    assert note.startswith(f"command: {shlex.join(shlex.split(command)[:2])} must start the 4 ranks (num_nodes: 2, ")
    assert note.endswith("stepset does not check this, and without a launcher each node runs one process")
    [alone] = notes(command, num_nodes=1)
    assert alone.endswith("without a launcher only one process runs")
    assert notes(command, num_nodes=1, procs_per_node=1) == []


@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py",
        "python3 -m torch.distributed.run train.py",
        "python3 -m debugpy --listen 5678 -m torch.distributed.run train.py",
        "python3 entry.py torchrun train.py",
        "./entry tune run recipe",
        "bash -c './prepare && torchrun train.py'",
    ],
)
def test_a_command_with_a_launcher_gets_none(command: str) -> None:
    assert notes(command) == []


def test_the_worker_layer_connects_one_process_in_each_node() -> None:
    both = {"kind": "torch", "env_layer": "both"}
    assert notes("python3 t.py", both, procs_per_node=1) == []
    assert len(notes("python3 train.py", both)) == 1
    own = {"env": {"NODE_RANK": "$(STEPSET_NODE_RANK)", "MASTER_ADDR": "$(PET_MASTER_ADDR)"}}
    [note] = notes("python3 train.py", **own)
    assert "must start the 4 ranks" in note


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
