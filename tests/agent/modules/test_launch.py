"""The environments and command lines with which ranks start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepset.agent.config import Config
from stepset.agent.launch import (
    launcher_command,
    newest_checkpoint,
    node_rank,
    pod_env,
    process_env,
    python_of,
    set_rank_env,
)


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ({}, 0),
        ({"JOB_COMPLETION_INDEX": "3"}, 3),
        ({"STEPSET_NODE_RANK": "2", "JOB_COMPLETION_INDEX": "3"}, 2),
        ({"STEPSET_NODE_RANK": "", "JOB_COMPLETION_INDEX": "x"}, 0),
    ],
)
def test_the_nodes_rank(env: dict[str, str], rank: int) -> None:
    assert node_rank(env) == rank


def test_the_defaults_of_every_rank_can_be_set_by_the_job() -> None:
    env: dict[str, str] = {"STEPSET_AGENT_DIR": "/other"}
    set_rank_env(env, "/pod")
    assert env == {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "STEPSET_RESULT_FILE": "/pod/result"}
    own = {"PYTHONUNBUFFERED": "", "PYTHONFAULTHANDLER": "", "STEPSET_RESULT_FILE": "/mine"}
    env = dict(own)
    set_rank_env(env, "/pod")
    assert env == own


@pytest.mark.parametrize(
    ("attempt", "file", "resumes"),
    [({}, True, True), ({"STEPSET_ATTEMPT": "0"}, True, True), ({"STEPSET_ATTEMPT": "1"}, True, True),
     ({"TORCHELASTIC_RESTART_COUNT": "2"}, True, True), ({"STEPSET_ATTEMPT": "1"}, False, False)],
)  # fmt: skip
def test_every_attempt_resumes_from_checkpoints(
    tmp_path: Path, attempt: dict[str, str], file: bool, resumes: bool
) -> None:
    if file:
        (tmp_path / "step-1").touch()
    env = {"STEPSET_CHECKPOINT_DIR": str(tmp_path), **attempt}
    set_rank_env(env, "/pod")
    assert env.get("STEPSET_RESUME_FROM") == (str(tmp_path) if resumes else None)


@pytest.mark.parametrize("name", [".nfs0001", "lost+found"])
def test_hidden_entries_and_the_lost_and_found_of_a_new_volume_are_no_checkpoints(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    env = {"STEPSET_CHECKPOINT_DIR": str(tmp_path), "STEPSET_ATTEMPT": "1"}
    assert newest_checkpoint(env) is None
    set_rank_env(env, "/pod")
    assert "STEPSET_RESUME_FROM" not in env


def test_the_newest_checkpoint_is_the_last_one_written(tmp_path: Path) -> None:
    for step, at in ((118, 3), (9, 2), (10, 1)):
        (tmp_path / f"step-{step}").touch()
        os.utime(tmp_path / f"step-{step}", (at, at))
    env = {"STEPSET_CHECKPOINT_DIR": str(tmp_path)}
    assert newest_checkpoint(env) == (3_000_000_000, str(tmp_path / "step-118"))
    # Another pod of the run has written the last two; a later attempt continues from them.
    assert newest_checkpoint(env, 1_500_000_000) == (1_000_000_000, str(tmp_path / "step-10"))
    assert newest_checkpoint({**env, "STEPSET_ATTEMPT": "1"}, 1_500_000_000) == (
        3_000_000_000,
        str(tmp_path / "step-118"),
    )
    # A fresh run ignores older ones.
    assert newest_checkpoint({**env, "STEPSET_FRESH": "2500000000"}) == (3_000_000_000, str(tmp_path / "step-118"))
    assert newest_checkpoint({**env, "STEPSET_FRESH": "3500000000"}) is None


def test_a_link_to_a_deleted_checkpoint_does_not_hide_the_others(tmp_path: Path) -> None:
    """Training code keeps the link `last`, and deletes old checkpoints. The order of the entries is arbitrary."""
    for n in range(20):
        (tmp_path / f"last-{n}").symlink_to("step-0")
    (tmp_path / "step-1").touch()
    for n in range(20, 40):
        (tmp_path / f"last-{n}").symlink_to("step-0")
    found = newest_checkpoint({"STEPSET_CHECKPOINT_DIR": str(tmp_path)})
    assert found is not None and found[1] == str(tmp_path / "step-1")


def test_all_ranks_of_a_pod_follow_its_decision(config: Callable[..., Config], tmp_path: Path) -> None:
    pod = pod_env(config(launcher=["torchrun"]), {"STEPSET_CHECKPOINT_DIR": str(tmp_path)})
    (tmp_path / "of-rank-0").touch()  # written before the other ranks start
    rank = dict(pod)
    set_rank_env(rank, "/pod")
    assert "STEPSET_RESUME_FROM" not in rank
    again = {**pod, "TORCHELASTIC_RESTART_COUNT": "1"}
    set_rank_env(again, "/pod")
    assert again["STEPSET_RESUME_FROM"] == str(tmp_path)


def test_a_pods_environment_has_no_variables_of_an_outer_run(config: Callable[..., Config]) -> None:
    env = pod_env(config(), {"STEPSET_LIFELINE": "1", "STEPSET_AGENT_DIR": "/other", "A": "1"})
    assert env == {
        "A": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "STEPSET_RESULT_FILE": "/pod/result",
        "TORCHELASTIC_ERROR_FILE": "/pod/error.json",
    }


def test_earlier_attempts_are_added(config: Callable[..., Config]) -> None:
    assert pod_env(config(attempt=2), {"STEPSET_ATTEMPT": "1"})["STEPSET_ATTEMPT"] == "3"
    assert pod_env(config(attempt=2), {})["STEPSET_ATTEMPT"] == "2"
    assert "STEPSET_ATTEMPT" not in pod_env(config(), {})
    assert pod_env(config(attempt=2), {"STEPSET_ATTEMPT": "1", "STEPSET_RESUMES": "3"})["STEPSET_ATTEMPT"] == "6"
    assert pod_env(config(), {"STEPSET_ATTEMPT": "1", "STEPSET_RESUMES": "3"})["STEPSET_ATTEMPT"] == "4"
    assert pod_env(config(), {"STEPSET_ATTEMPT": "1", "STEPSET_RESUMES": ""})["STEPSET_ATTEMPT"] == "1"


def test_a_pod_outside_the_world_has_no_result(config: Callable[..., Config]) -> None:
    assert "STEPSET_RESULT_FILE" not in pod_env(config(in_world=False), {})


def test_a_pod_that_serves_gets_the_path_of_its_agent(config: Callable[..., Config]) -> None:
    assert pod_env(config(serve="/sockets/a"), {})["STEPSET_AGENT_DIR"] == "/pod"


def test_numbers_are_filled_in(config: Callable[..., Config]) -> None:
    values = {"ALL": "{rank} {local_rank} {node_rank} {first}"}
    filled = config(processes=4, process_env=values)
    assert process_env(filled, {"A": "1"}, 0, 0) == {"A": "1", "ALL": "0 0 0 1"}
    assert process_env(filled, {}, 2, 3) == {"ALL": "11 3 2 0"}


def test_the_launcher_command_wraps_every_rank(config: Callable[..., Config]) -> None:
    made = config(launcher=["torchrun", "--nproc=$(N)"], program=["sh", "$(HOME)/x"], command_len=2, world_size=4)
    env = {"N": "2", "HOME": "/h", "PATH": os.defpath}
    assert launcher_command(made, ["torchrun", "x", "--epochs", "3"], env, "/agent.py") == [
        "torchrun", "--nproc=2",
        sys.executable, "-I", "-S", "/agent.py", "rank", "--dir", "/pod", "--world", "4", "--",
        "sh", "/h/x", "--epochs", "3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "python"),
    [
        ("#!/env/bin/python3.11\n", "/env/bin/python3.11"),
        ('#!/bin/sh\n\'\'\'exec\' "/a long/bin/python" "$0" "$@"\n', "/a long/bin/python"),
        ("#!/usr/bin/env python3\n", None),
        ("#!/bin/sh\n", None),
    ],
)
def test_the_python_of_a_launcher(tmp_path: Path, start: str, python: str | None) -> None:
    script = tmp_path / "launch"
    script.write_text(start)
    script.chmod(0o755)
    assert python_of("launch", {"PATH": str(tmp_path)}) == python
    assert python_of("none", {"PATH": str(tmp_path)}) is None
