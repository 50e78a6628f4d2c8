"""A thread of a rank prints lines while all ranks hang. The lines do not hide the hang."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepset.agent.hangs.training import Training
from tests.hangs.conftest import Ranks, main_process, stack

Start = Callable[..., Ranks]
PROGRAM = """
import os, sys, threading, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
RANK = dist.get_rank()

def status():
    while True:
        print("still running", flush=True)
        time.sleep(0.3)

def step():
    dist.all_reduce(torch.ones(4))
    time.sleep(0.1)

def load():
    while not os.path.exists(sys.argv[2]):
        time.sleep(1)

def evaluate():
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        torch.rand(300, 300).matmul(torch.rand(300, 300)).sum().item()

if RANK == 0:
    threading.Thread(target=status, daemon=True).start()
end = torch.tensor(time.monotonic() + 10, dtype=torch.float64)
dist.broadcast(end, 0)
while time.monotonic() < end:
    step()
if sys.argv[1] == "hang" and RANK == 1:
    load()
elif sys.argv[1] == "evaluation" and RANK == 0:
    evaluate()
dist.barrier()
print("barrier", flush=True)
for _ in range(80):
    step()
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The path of PROGRAM."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.mark.frameworks
def test_a_thread_that_prints_does_not_hide_a_hang_of_all_ranks(start: Start, program: str, tmp_path: Path) -> None:
    end = tmp_path / "end"
    ranks = start(sys.executable, program, "hang", str(end), hang={"after": 2, "first": 120})
    events = ranks.stalled(0, 1)
    assert stack(main_process(events[1]))[0] == "load"
    assert all(event["prints"] and event["silent"] >= 4 for event in events.values())
    assert b"resumed" not in ranks.running[0].printed
    end.touch()
    ranks.running[0].wait_for_line(b'{"event": "resumed"')
    assert ranks.running[0].end().exit_code == 0


@pytest.mark.frameworks
def test_a_rank_that_prints_while_it_works_is_not_reported(start: Start, program: str) -> None:
    ended = start(sys.executable, program, "evaluation", "20", hang={"after": 2, "first": 120}).running[0].end()
    assert ended.exit_code == 0
    assert not ended.events("stalled")


def sample(rank: int, *, waits: bool, works: bool = False) -> dict[str, object]:
    """What the event of a rank contains."""
    group = {"seq": 7 if waits else 0, "age": 99.0}
    return {"rank": rank, "processes": [{"busy": works, "changed": works}], "collectives": [group]}


def regular() -> Training:
    """Changes of the training at 0, 1, ... 4 s."""
    training = Training(2.0, 0.0)
    for at in range(5):
        training.changed(float(at))
    return training


def test_lines_hide_no_pause_that_is_much_longer_than_usual() -> None:
    training = regular()
    assert [training.is_late(at) for at in (8.0, 8.9, 9.0)] == [False, False, True]


def test_changes_that_were_never_regular_mean_nothing() -> None:
    training = Training(2.0, 0.0)
    for at in (1.0, 2.0):
        training.changed(at)
    assert not training.is_late(1000.0)


@pytest.mark.parametrize(
    ("ranks", "lines", "stuck"),
    [
        ([sample(0, waits=True), sample(1, waits=False)], b"[rank 0] still running\n", True),
        ([sample(0, waits=True), sample(1, waits=False)], b"[rank 1~] 17 %\n", False),
        ([sample(0, waits=True), sample(1, waits=False, works=True)], b"[rank 0] still running\n", False),
        ([sample(0, waits=True)], b"[node 0] a line of the launcher\n", False),
        ([sample(0, waits=False)], b"[rank 0] still running\n", False),
    ],
)
def test_ranks_are_stuck_if_those_that_print_wait_and_none_works(ranks: object, lines: bytes, stuck: bool) -> None:
    training = regular()
    training.printed(lines)
    assert training.is_stuck(ranks) is stuck  # type: ignore[arg-type]
