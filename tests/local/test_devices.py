"""The devices that ranks see in local runs, and the number of ranks of a node with devices."""

from __future__ import annotations

import os

import pytest

from tests.local.conftest import Local

pytestmark = pytest.mark.local

SHOW = """
import os
print(os.environ["LOCAL_RANK"], os.environ["DMLC_TASK_ID"], os.environ.get("CUDA_VISIBLE_DEVICES"))
"""


def seen(local: Local, **job: object) -> list[str]:
    """What each worker prints, in the order of the ranks."""
    status = local.run(SHOW, framework="xgboost", **job)
    assert status.failure is None
    return [local.texts(f"rank {row.rank}")[0] for row in status.ranks]


def test_each_worker_has_a_gpu_of_its_own(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert seen(local, num_nodes=2, procs_per_node=2) == ["0 0 0,1", "1 1 1,0", "0 2 2,3", "1 3 3,2"]


def test_workers_of_one_node_turn_the_callers_list(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1a,GPU-2b")
    assert seen(local, procs_per_node=2) == ["0 0 GPU-1a,GPU-2b", "1 1 GPU-2b,GPU-1a"]


def test_the_job_names_the_devices(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    env = {"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"}
    assert seen(local, procs_per_node=2, env=env) == ["0 0 MIG-1,MIG-2", "1 1 MIG-2,MIG-1"]


def test_hidden_gpus_stay_hidden(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the job requests GPUs, which a local run does not check."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert seen(local, resources_per_node={"gpus": 2}) == ["0 0 ", "1 1 "]


@pytest.mark.parametrize(("visible", "requested", "noted"), [("", 2, True), ("0,1", 2, False), ("", None, False)])
def test_a_note_states_that_a_job_with_gpus_runs_on_cpus(
    local: Local, monkeypatch: pytest.MonkeyPatch, visible: str, requested: int | None, noted: bool
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    job = {"resources_per_node": {"gpus": requested}} if requested else {"procs_per_node": 2}
    status = local.run(SHOW, framework="xgboost", **job)
    assert status.failure is None
    note = "stepset found 0 GPUs on this machine; without GPUs, 2 processes run on CPUs"
    assert (note in status.notes) == noted


@pytest.mark.parametrize("memory", ["1Gi", None])
def test_a_note_states_that_the_memory_is_not_limited(local: Local, memory: str | None) -> None:
    job = {"resources_per_node": {"memory": memory}} if memory else {}
    status = local.run("print('trained')", framework="plain", **job)
    note = "resources_per_node.memory: a local run does not limit the memory of its nodes to 1Gi"
    assert (note in status.notes) == bool(memory)


def test_a_node_has_the_requested_number_of_ranks_whatever_torchrun_counts(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    requested = (os.cpu_count() or 1) + 1  # torchrun would count the cores of this machine
    status = local.run("print('trained')", framework="torch", resources_per_node={"gpus": requested})
    assert (status.failure, status.world_size) == (None, requested)
    assert [row.last_line for row in status.ranks] == ["trained"] * requested


def test_a_command_without_the_agent_sees_all_devices(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    command = ["/bin/sh", "-c", "echo ${LOCAL_RANK-unset} $DMLC_TASK_ID $DMLC_NUM_WORKER $CUDA_VISIBLE_DEVICES"]
    local.run("", script=None, command=command, framework="xgboost", agent=False, procs_per_node=1)
    assert local.texts("node 0") == ["unset 0 1 0,1"]
