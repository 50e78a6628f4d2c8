"""Hangs of real torch programs: the class, the guilty ranks, and the line in the user's code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepset.hang import Hang
from stepset.run_status import RankStatus
from stepset.watch.agent_events import read_events
from stepset.watch.hangs.evidence import read_evidence
from stepset.watch.hangs.rules import hang_of
from tests.watch.hangs.programs import PROGRAMS, source

RECORDED = Path(__file__).parent / "recorded"


def events(name: str) -> list[dict[str, Any]]:
    """The recorded events of a program, as an agent prints them."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def hang(name: str, *, exited: str = "Succeeded", without: int | None = None) -> Hang | None:
    """The hang of a recorded program. The ranks without an event have exited, except the rank `without`."""
    evidence = {read["rank"]: found for read in read_events(events(name)) if (found := read_evidence(read["stalled"]))}
    rows = [
        RankStatus(f"rank {rank}", rank, f"node-{rank}", state="Running" if rank in evidence else exited)
        for rank in range(PROGRAMS[name][0])
    ]
    evidence.pop(without, None)
    return hang_of(rows, evidence)


def line_of(name: str, text: str) -> int:
    """The number of the line of a program that contains a text."""
    return next(number for number, line in enumerate(source(name).splitlines(), 1) if text in line)


CASES = {
    # program: class, guilty ranks, state, process, text of the line
    "worker_sleeps": ("Missing", (2,), "sleeping", "DataLoader worker 0", "time.sleep(600)"),
    "data_set_sleeps": ("Missing", (1,), "sleeping", "", "time.sleep(600)"),
    "locks": ("Blocked", (1,), "lock", "", "        with two:"),
    "leaves_early": ("Left", (1,), "exited", "", ""),
    "never_joins": ("NeverJoined", (1,), "sleeping", "", "time.sleep(600)"),
    "endless_loop": ("Busy", (1,), "running", "", "values = sorted"),
    "stopped": ("Blocked", (1,), "stopped", "python", ""),
    "does_not_exit": ("AtExit", (1,), "exiting", "", "time.sleep(600)"),
    "tensor_and_data_parallel": ("Missing", (3,), "sleeping", "", "time.sleep(600)"),
    "subprocess": ("Missing", (0,), "child", "child process sleep", "subprocess.run"),
    "monitored_barrier": ("Missing", (1,), "pipe", "", "os.read"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_guilty_rank_and_its_line_are_named(name: str) -> None:
    kind, ranks, state, process, text = CASES[name]
    found = hang(name)
    assert found is not None
    assert found.kind == kind
    (guilty,) = found.guilty
    assert (guilty.ranks, guilty.state, guilty.process) == (ranks, state, process)
    place = guilty.frame and (guilty.frame.file, guilty.frame.line)
    assert place == (("/app/train.py", line_of(name, text)) if text else None)


def test_all_tested_programs_are_recorded() -> None:
    assert {path.stem for path in RECORDED.glob("*.json")} == PROGRAMS.keys()


def test_the_waiting_ranks_are_one_group_with_their_collective() -> None:
    found = hang("worker_sleeps")
    assert found is not None
    waiting = next(group for group in found.groups if not group.guilty)
    assert waiting.ranks == (0, 1, 3)
    assert waiting.collective is not None
    assert (waiting.collective.name, waiting.collective.number, waiting.collective.backend) == ("all_reduce", 8, "gloo")
    assert waiting.frame is not None
    assert (waiting.frame.function, waiting.frame.call, waiting.frame.line) == (
        "step",
        "backward",
        line_of("worker_sleeps", "backward()"),
    )
    assert found.last == "all_reduce #7"
    assert (found.silent, found.longest, found.since) == (310.2, 12.0, 1_000_000_000.0)


@pytest.mark.parametrize("name", ["other_collective", "order_of_groups"])
def test_ranks_in_different_collectives_are_a_mismatch_with_both_places(name: str) -> None:
    found = hang(name)
    assert found is not None
    assert found.kind == "Mismatch"
    assert [group.ranks for group in found.guilty] == [(0,), (1,)]
    assert all(group.frame is not None and group.frame.file == "/app/train.py" for group in found.guilty)


def test_a_receive_without_a_send_names_both_ranks() -> None:
    found = hang("recv_without_send")
    assert found is not None
    assert found.kind == "Mismatch"
    assert {rank for group in found.guilty for rank in group.ranks} == {0, 1}
    lines = {group.frame.line for group in found.groups if group.frame}
    assert line_of("recv_without_send", "dist.recv") in lines


def test_both_threads_of_a_deadlock_are_named() -> None:
    found = hang("locks")
    assert found is not None
    (guilty,) = found.guilty
    assert [frame.line for frame in guilty.others] == [line_of("locks", "        with one:")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_running_rank_without_evidence_makes_progress(name: str) -> None:
    for event in events(name):
        assert hang(name, without=event["rank"]) is None


def test_the_ranks_that_wait_for_a_busy_rank_are_no_hang() -> None:
    found = hang("endless_loop")
    assert found is not None
    assert [group.ranks for group in found.groups if not group.guilty] == [(0,)]
