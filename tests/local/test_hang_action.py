"""Local runs that hang: they end or restart if the job says so, and a stop shows where each rank was."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from stepset.backends.local import LocalBackend
from stepset.hang import HANG_CODES, HangKind
from stepset.run_status import FailureKind, Phase, RunStatus
from tests.local.conftest import Local
from tests.waiting import until

pytestmark = pytest.mark.local
TORCH = {"kind": "torch", "launcher": "none"}
NODES = {"framework": TORCH, "num_nodes": 2, "procs_per_node": 2}
TRAINS = """
    import datetime, json, os, sys, time
    import torch
    import torch.distributed as dist

    class Data:
        def __getitem__(self, index):
            if index == 5 and dist.get_rank() == 3 and os.environ["STEPSET_ATTEMPT"] == "0":
                time.sleep(1000)
            return torch.ones(4)

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=float(sys.argv[1])))
    data = Data()
    for step in range(8):
        dist.all_reduce(data[step])
        print(json.dumps({"stepset": {"step": step}}), flush=True)
    dist.destroy_process_group()  # otherwise torch 2.15 aborts one of ten ranks at its exit, also without stepset
"""
PLACE = "rank 3 has not joined; sleeping in __getitem__ train.py:9"
# Without torch, which takes long to import: rank 3 sleeps, and the others wait for input that never arrives.
WAITS = """
    import json, os, socket, time
    def load(): time.sleep(1000)
    def reduce(): socket.create_server(("127.0.0.1", 0)).accept()
    print(json.dumps({"stepset": {"step": 1}}), flush=True)
    load() if os.environ["RANK"] == "3" else reduce()
"""
NO_STEP = """
    import time
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        time.sleep(1000)
    dist.barrier()
"""
QUIET = """
    import json, time
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    print(json.dumps({"stepset": {"step": 1}}), flush=True)
    while True:
        time.sleep(0.2)
        dist.all_reduce(torch.ones(4))
"""


@pytest.fixture
def patient(local: Local) -> Local:
    """A local backend whose runs have time to collect evidence before they are killed."""
    local.backend = LocalBackend(local.home, grace=20)
    return local


@pytest.mark.frameworks
def test_fail_ends_the_run_without_a_restart_and_names_the_rank(patient: Local) -> None:
    hang = {"after": 6, "first": 300, "action": "fail"}
    status = patient.run(TRAINS, args=["600"], hang=hang, restart={"max_restarts": 3}, **NODES)
    assert (status.phase, status.attempt) == (Phase.FAILED, 0)
    assert status.failure is not None
    assert (status.failure.kind, status.failure.rank) == (FailureKind.USER_ERROR, 3)
    assert status.failure.exit_code == HANG_CODES[0]
    assert status.failure.message.startswith("a hang has ended the run; the run had made no progress for ")
    assert status.failure.message.endswith(f" s: {PLACE}.")
    assert status.failure.advice == "train.py:9 on rank 3 blocks all other ranks."
    assert status.hang is not None and status.hang.kind is HangKind.MISSING


@pytest.mark.frameworks
@pytest.mark.frameworks
def test_fail_ends_a_run_in_which_a_rank_has_started_no_collective(patient: Local) -> None:
    status = patient.run(NO_STEP, hang={"after": 6, "first": 12, "action": "fail"}, **NODES)
    assert status.failure is not None and status.failure.exit_code in HANG_CODES
    assert "rank 1 has not joined; sleeping in <module> train.py:7" in status.failure.message


@pytest.mark.frameworks
def test_restart_starts_the_gang_again_and_the_second_attempt_succeeds(patient: Local) -> None:
    hang = {"after": 6, "first": 300, "action": "restart"}
    status = patient.run(TRAINS, args=["600"], hang=hang, restart={"max_restarts": 1}, **NODES)
    assert (status.phase, status.attempt, status.failure, status.hang) == (Phase.SUCCEEDED, 1, None, None)
    (note,) = [note for note in status.notes if note.startswith("restart 1")]
    assert PLACE in note


@pytest.mark.frameworks
def test_a_timeout_of_gloo_names_the_rank_that_sleeps(patient: Local) -> None:
    status = patient.run(TRAINS, args=["20"], hang={"after": 30, "first": 300}, **NODES)
    assert status.failure is not None
    assert status.failure.rank in (0, 1, 2)
    assert "Timed out waiting" in status.failure.error
    assert status.failure.message.endswith(f": {PLACE}.")
    assert status.failure.advice == "train.py:9 on rank 3 blocks all other ranks."
    assert not any(each.hang for each in patient.listener.statuses if not each.phase.final)


def hangs(local: Local) -> Callable[[], bool]:
    """Returns a function that states whether all ranks have reported their only step."""

    def reported() -> bool:
        return any(status.progress for status in local.listener.statuses) and all(
            row.last_line_at for row in local.listener.statuses[-1].ranks
        )

    return reported


def cancelled(local: Local, text: str, seconds: float, **hang: Any) -> RunStatus:
    handle = local.start(text, hang=hang, **NODES)
    assert until(hangs(local))
    since = max(row.last_line_at or 0.0 for row in local.listener.statuses[-1].ranks)
    assert until(lambda: time.time() - since > seconds)
    handle.cancel()
    return handle.wait()


@pytest.mark.frameworks
def test_a_cancel_during_a_hang_shows_where_each_rank_was(patient: Local) -> None:
    status = cancelled(patient, WAITS, 12, after=30, first=300)
    assert status.failure is not None and status.failure.kind is FailureKind.CANCELLED
    assert "; before, the run had made no progress for 1" in status.failure.message
    assert "rank 3 has not joined; sleeping in load train.py:3" in status.failure.message
    assert status.hang is not None
    assert {rank for group in status.hang.groups for rank in group.ranks} == {0, 1, 2, 3}


@pytest.mark.frameworks
def test_a_cancel_long_before_a_hang_is_reported_shows_where_the_ranks_were(patient: Local) -> None:
    status = cancelled(patient, WAITS, 31, after="5m", first="30m")
    assert status.failure is not None
    assert "rank 3 has not joined; sleeping in load train.py:3" in status.failure.message


@pytest.mark.frameworks
def test_a_cancel_of_a_training_that_prints_nothing_shows_nothing(patient: Local) -> None:
    status = cancelled(patient, QUIET, 31, after="5m", first="30m")
    assert status.failure is not None and status.hang is None
    assert "no progress" not in status.failure.message


def test_a_cancel_without_a_hang_shows_nothing(patient: Local) -> None:
    status = cancelled(patient, WAITS, 1, after=300, first=300)
    assert status.failure is not None and status.hang is None
    assert "no progress" not in status.failure.message
    assert not any(each.hang for each in patient.listener.statuses)


@pytest.mark.frameworks
def test_a_deadline_during_a_hang_names_the_rank_that_sleeps(patient: Local) -> None:
    status = patient.run(WAITS, deadline="18s", hang={"after": 30, "first": 300}, **NODES)
    assert status.failure is not None and status.failure.kind is FailureKind.DEADLINE_EXCEEDED
    assert "rank 3 has not joined; sleeping in load train.py:3" in status.failure.message
    assert status.failure.advice == "train.py:3 on rank 3 blocks all other ranks."


@pytest.mark.frameworks
def test_ranks_of_one_node_that_all_wait_are_ended(patient: Local) -> None:
    # The node has all ranks of the run, so its agent needs no torch to know that none works.
    hang = {"after": 4, "first": 300, "action": "fail"}
    status = patient.run(WAITS, framework=TORCH, num_nodes=1, procs_per_node=4, hang=hang)
    assert status.failure is not None
    assert (status.failure.kind, status.failure.exit_code) == (FailureKind.USER_ERROR, HANG_CODES[0])
    assert "sleeping in load train.py:3" in status.failure.message
