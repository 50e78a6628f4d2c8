"""A rank that blocks the others in pods: the reported hang, and `stepset stacks`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stepset.hang import Hang, HangGroup, HangKind
from stepset.run_status import FailureKind, Phase
from stepset.targets.rbac import Account, rbac
from tests.cluster.runs import ACCOUNT, RecordingListener, Runs
from tests.cluster.stage import Stage
from tests.waiting import until

pytestmark = pytest.mark.cluster

# Rank 1 hangs, and rank 0 waits for a connection.
PROGRAM = """
import ctypes, fcntl, json, os, queue, signal, socket, subprocess, threading, time

def planted():
    PLANTED

def reduce():
    socket.create_server(('', 4711)).accept()

print(json.dumps({'stepset': {'step': 118}}), flush=True)
planted() if rank == 1 else reduce()
"""
PLANTED = {
    "lock": ("lock", "lock = threading.Lock(); lock.acquire(); lock.acquire()"),
    "queue": ("lock", "queue.Queue().get()"),
    "pipe": ("pipe", "os.read(os.pipe()[0], 1)"),
    "subprocess": ("child", "subprocess.run(['sleep', '100000'])"),
    "stop": ("stopped", "os.kill(os.getpid(), signal.SIGSTOP)"),
    "kernel": (
        "disk",
        "os.mkfifo('/tmp/fifo'); os.posix_spawn('/bin/true', ['true'], {},"
        " file_actions=[(os.POSIX_SPAWN_OPEN, 0, '/tmp/fifo', os.O_RDONLY, 0)])",
    ),
}
"""The state of rank 1, and the code that it executes."""
TORCH = """
import time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, n):
        if rank == 1 and n == 9:
            time.sleep(100_000)
        return torch.ones(4)

dist.init_process_group('gloo')
for batch in DataLoader(Data(), batch_size=2, num_workers=1):
    dist.all_reduce(batch)
"""
SOON = {"after": "3s", "first": "10m"}


def hang_of(listener: RecordingListener) -> Hang:
    """Waits for the hang of a run."""
    listener.wait_until(lambda: any(status.hang for status in listener.statuses), "the hang")
    return next(status.hang for status in reversed(listener.statuses) if status.hang)


def group_of(hang: Hang, rank: int) -> HangGroup:
    """The group of a rank."""
    return next(group for group in hang.groups if rank in group.ranks)


def allow_stacks(runs: Runs) -> None:
    """Grants the right for `stepset stacks`."""
    for each in rbac("cli", exec=True, namespace=runs.namespace, accounts=[Account(ACCOUNT)]):
        runs.cluster.objects.create(each, runs.namespace, exist_ok=True)


HUNG = PROGRAM.replace("PLANTED", "time.sleep(100_000)")
LAST = "planted() if rank == 1 else reduce()"
ONCE = HUNG.replace(LAST, f"if attempt == 0:\n    {LAST}")
"""Hangs only in the first attempt."""


def test_the_hang_names_the_place_of_each_rank_and_stacks_shows_them(runs: Runs, stage: Stage) -> None:
    allow_stacks(runs)
    program = PROGRAM.replace("PLANTED", "time.sleep(100_000)")
    handle, listener = runs.start(**stage.job(program, hang=SOON))
    hang = hang_of(listener)
    assert hang.kind is HangKind.BLOCKED
    places = {rank: group.frame.function for group in hang.groups for rank in group.ranks if group.frame}
    assert places == {0: "reduce", 1: "planted"}

    shown = runs.cli("stacks", handle.name, "-o", "json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["problems"] == []
    functions = {
        rank["rank"]: [frame["function"] for frame in rank["processes"][0]["threads"][0]["frames"]]
        for rank in found["ranks"]
    }
    assert "reduce" in functions[0]
    assert "planted" in functions[1]

    handle.cancel()
    assert handle.wait().phase is Phase.FAILED


def test_status_and_diagnose_show_the_hang_of_a_run_that_no_process_follows(runs: Runs, stage: Stage) -> None:
    program = PROGRAM.replace("PLANTED", "time.sleep(100_000)")
    backend, request = runs.backend(), runs.request(**stage.job(program, hang=SOON))
    name = backend.submit(request).name
    assert until(lambda: backend.status(name).hang is not None, every=2.0)
    found = backend.status(name)
    assert found.hang is not None
    assert found.hang.kind is HangKind.BLOCKED
    assert found.progress is not None
    assert found.progress.step == 118
    for command in ("status", "diagnose"):
        shown = runs.cli(command, name)
        assert "no progress for" in shown.stdout + shown.stderr
    backend.cancel(name)


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_hang_is_reported_with_its_state_and_its_line(runs: Runs, stage: Stage, case: str) -> None:
    state, code = PLANTED[case]
    handle, listener = runs.start(**stage.job(PROGRAM.replace("PLANTED", code), hang=SOON))
    hang = hang_of(listener)
    assert hang.kind is HangKind.BLOCKED
    guilty = group_of(hang, 1)
    assert (guilty.ranks, guilty.state, guilty.guilty) == ((1,), state, True)
    if case in ("stop", "kernel"):  # such a process runs no code, so it cannot state its line
        assert guilty.frame is None
    else:
        assert guilty.frame is not None
        assert guilty.frame.function == "planted"
    handle.cancel()
    handle.wait()


def test_a_worker_of_a_data_loader_is_named_in_pods(runs: Runs, stage: Stage) -> None:
    path = f"{Path(runs.cluster.python).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    env = {"PATH": path, "OMP_NUM_THREADS": "1"}
    handle, listener = runs.start(**stage.job(TORCH, hang=SOON, env=env))
    hang = hang_of(listener)
    guilty = group_of(hang, 1)
    assert (hang.kind, guilty.ranks, guilty.process) == (HangKind.MISSING, (1,), "DataLoader worker 0")
    assert guilty.frame is not None
    assert guilty.frame.function == "__getitem__"
    waiting = group_of(hang, 0)
    assert waiting.collective is not None
    assert waiting.collective.name == "all_reduce"
    handle.cancel()
    handle.wait()


def test_stacks_shows_64_pods(runs: Runs, stage: Stage) -> None:
    allow_stacks(runs)
    program = "print('sleeps', flush=True)\ntime.sleep(100_000)"
    handle, listener = runs.start(**stage.job(program, num_nodes=64, hang={"after": "1h", "first": "1h"}))
    listener.wait_for_line("sleeps", 64, timeout=600)
    shown = runs.cli("stacks", handle.name, "-o", "json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["problems"] == []
    assert sorted(rank["rank"] for rank in found["ranks"]) == list(range(64))
    handle.cancel()
    handle.wait()


def test_fail_ends_the_run_and_names_the_place(runs: Runs, stage: Stage) -> None:
    hang = {"after": "3s", "first": "10m", "action": "fail"}
    job = stage.job(HUNG, hang=hang, restart={"max_restarts": 3}, num_nodes=1, procs_per_node=2)
    handle, _ = runs.start(**job)
    status = handle.wait()
    assert (status.phase, status.attempt) == (Phase.FAILED, 0)
    assert status.failure is not None
    assert (status.failure.kind, status.failure.exit_code) == (FailureKind.USER_ERROR, 74)
    assert status.failure.message.startswith("a hang has ended the run; the run had made no progress for ")
    assert "planted" in status.failure.message
    assert status.hang is not None and status.hang.kind is HangKind.BLOCKED


def test_restart_starts_the_gang_again_without_a_process_that_follows_it(runs: Runs, stage: Stage) -> None:
    hang = {"after": "3s", "first": "10m", "action": "restart"}
    handle, _ = runs.start(**stage.job(ONCE, hang=hang, restart={"max_restarts": 1}, num_nodes=1, procs_per_node=2))
    handle.leave()
    assert until(lambda: runs.get(f"jobset/{handle.name}").get("status", {}).get("restarts") == 1, 180)
    waited = runs.cli("wait", handle.name)
    assert waited.returncode == 0, waited.stderr


def test_an_eviction_during_a_hang_shows_where_the_ranks_were(runs: Runs, stage: Stage) -> None:
    handle, listener = runs.start(**stage.job(ONCE, hang={"after": "30s", "first": "10m"}))
    listener.wait_until(lambda: any(status.progress for status in listener.statuses), "the first step")
    since = time.monotonic()
    assert until(lambda: time.monotonic() - since > 15)  # a third of the time, and the start of the other rank
    runs.evict(runs.pods()[1]["metadata"]["name"])
    status = handle.wait()
    assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)
    (note,) = [note for note in status.notes if note.startswith("restart 1")]
    assert "the run had made no progress for " in note
    assert "planted" in note
