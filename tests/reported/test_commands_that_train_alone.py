"""A command of a torch or DeepSpeed job that starts too few ranks: each node would train alone, and the run succeed.

A launcher is put before a command that names none. The run fails if a command that starts the ranks itself starts
another number of ranks than the job states.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.errors import BadInputError
from stepset.run_status import FailureKind, RunStatus
from tests.notebook.conftest import home

__all__ = ["home"]

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("home")]

TRAIN = """\
import json, os, time
import torch.distributed as dist

world = 1
if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    dist.barrier()
    dist.destroy_process_group()
else:
    time.sleep(2)
if os.environ.get("RANK", "0") == "0":
    json.dump({"world": world}, open(os.environ["STEPSET_RESULT_FILE"], "w"))
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def train(code: Path, command: str, **job: Any) -> RunStatus:
    fields = {"num_nodes": 2, "procs_per_node": 2, "command": shlex.split(command), "code": ".", **job}
    try:
        return stepset.run({"framework": "torch", **fields}, base_dir=code)
    except stepset.TrainingFailedError as error:
        return error.status


def script(code: Path, text: str) -> str:
    (code / "run.sh").write_text(f"#!/bin/sh\n{text}\n")
    return "sh run.sh"


@pytest.mark.parametrize("command", ["python train.py", "env FOO=1 python train.py", "bash -c 'exec python train.py'"])
def test_a_command_that_names_no_launcher_trains_in_one_world(code: Path, command: str) -> None:
    status = train(code, command)
    assert status.result == {"world": 4}
    assert [rank.rank for rank in status.ranks] == [0, 1, 2, 3]


def test_a_launcher_of_the_command_that_starts_all_ranks_is_kept(code: Path) -> None:
    assert train(code, script(code, "torchrun train.py")).result == {"world": 4}


@pytest.mark.parametrize(
    "launch",
    [
        "torchrun --nnodes=1 --node-rank=0 --nproc-per-node=1 --master-addr=127.0.0.1 --master-port=0 train.py",
        "N=1; torchrun --nproc-per-node=$N train.py",
    ],
)
def test_a_script_whose_launcher_starts_fewer_ranks_ends_the_run_with_both_numbers(code: Path, launch: str) -> None:
    status = train(code, script(code, launch), deadline=100)
    assert status.failure is not None and status.failure.kind is FailureKind.RENDEZVOUS
    assert "the command started " in status.failure.error and " instead of 4;" in status.failure.error
    assert "framework.launch: command" in status.failure.error


@pytest.mark.parametrize("command", ["{}", "env A=1 {}", "bash -c 'cd /tmp && exec {}'"])
@pytest.mark.parametrize("option", ["--standalone", "--nnodes=1", "--nnodes 1:2", "--nproc_per_node 1"])
def test_a_contradiction_in_the_command_is_an_error_before_the_start(code: Path, command: str, option: str) -> None:
    with pytest.raises(BadInputError, match=r"^command: --.* of torchrun (contradicts|would train)"):
        train(code, command.format(f"torchrun --nproc-per-node=2 {option} train.py"))


def test_a_program_that_runs_alone_in_each_node_fails_the_run(code: Path) -> None:
    (code / "launch.py").write_text(TRAIN)
    status = train(code, "python launch.py")
    assert status.failure is not None and status.failure.kind is FailureKind.RENDEZVOUS
    assert "ran alone in this node, as a world of 1 rank instead of 4" in status.failure.error


def test_with_the_field_that_keeps_a_command_each_node_runs_it_unchecked(code: Path) -> None:
    status = train(code, "python train.py", framework={"kind": "torch", "launch": "command"})
    assert status.failure is None and status.result == {"world": 1}


def test_a_script_on_this_machine_that_starts_no_launcher_is_an_error_before_the_start(code: Path) -> None:
    command = script(code, "cd /tmp\npython train.py  # not with torchrun")
    with pytest.raises(BadInputError) as caught:
        train(code, command)
    assert str(caught.value) == (
        "command: the script run.sh starts no torchrun, so that each node would run it as one process; if it is the"
        " program of each rank, write torchrun --no-python sh run.sh, otherwise set framework: {kind: torch, launch:"
        " command}"
    )
    (code / "start").write_text("#!/bin/bash\nexec torchrun train.py\n")
    with pytest.raises(BadInputError, match=r"the script \./start starts torchrun itself, and torchrun would start"):
        train(code, "./start")
