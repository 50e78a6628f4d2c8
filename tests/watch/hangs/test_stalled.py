"""The evidence of a pod is valid until the pod shows progress. A status contains the hang only while it lasts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stepset.hang import Hang
from stepset.run_status import Failure, FailureKind, Phase, RankStatus, RunStatus
from stepset.watch.hangs.stalled import KnownHang, StalledRanks, with_hang, with_known_hang
from stepset.watch.lines import Splitter
from tests.watch.hangs.evidence import BACKWARD, SLEEP, done, flying, process, stalled

WAITS = stalled(0, process(BACKWARD), collectives=[flying()])
SLEEPS = stalled(1, process(SLEEP, syscall=230), collectives=[done()])
BUSY = stalled(1, process(SLEEP, state="R", busy=True), collectives=[done()])
ROWS = tuple(RankStatus(f"rank {n}", n, f"node-{n}", f"node {n}", "Running") for n in (0, 1))
RUNS = RunStatus("a-1", "a", "local", Phase.RUNNING, ranks=ROWS)
PODS = {"node-0": "uid-0", "node-1": "uid-1"}


def text(*items: dict[str, Any] | str) -> bytes:
    lines = (each if isinstance(each, str) else f"[stepset] {json.dumps(each)}" for each in items)
    return "".join(f"{line}\n" for line in lines).encode()


def feed(ranks: StalledRanks, pod: str, *items: dict[str, Any] | str) -> bool:
    return ranks.see(pod, Splitter("node 0").feed(text(*items)))


def hangs() -> StalledRanks:
    ranks = StalledRanks()
    feed(ranks, "uid-0", WAITS)
    feed(ranks, "uid-1", SLEEPS)
    return ranks


def status(ranks: StalledRanks, before: RunStatus = RUNS) -> RunStatus:
    return with_hang(before, ranks.of(before.ranks, PODS))


def the_hang() -> Hang:
    found = status(hangs()).hang
    assert found is not None
    return found


def test_the_hang_is_known_when_the_last_rank_has_sent_evidence() -> None:
    ranks = StalledRanks()
    assert feed(ranks, "uid-0", WAITS)
    assert status(ranks).hang is None
    assert feed(ranks, "uid-1", SLEEPS)
    found = status(ranks).hang
    assert found is not None
    assert [group.ranks for group in found.guilty] == [(1,)]


@pytest.mark.parametrize("state", ["Failed", "Stopped"])
def test_a_run_whose_ranks_are_being_stopped_has_no_hang(state: str) -> None:
    assert status(hangs(), RUNS.with_(ranks=(*ROWS, replace(ROWS[0], rank=2, state=state)))).hang is None


def test_lines_do_not_end_a_hang_whose_ranks_print_lines_until_the_agent_reports_progress() -> None:
    ranks = StalledRanks()
    feed(ranks, "uid-0", {**WAITS, "prints": True})
    feed(ranks, "uid-1", SLEEPS)
    for line in ("[rank 0] still running", "[rank 0~] 40 %"):
        feed(ranks, "uid-0", line)
        assert status(ranks).hang is not None
    assert feed(ranks, "uid-0", {"event": "resumed", "at": 1400.0})
    assert status(ranks).hang is None
    feed(ranks, "uid-0", WAITS)
    assert status(ranks).hang is not None
    feed(ranks, "uid-0", "[rank 0] step 119")
    assert status(ranks).hang is None


@pytest.mark.parametrize(
    "item",
    [
        {"event": "resumed", "at": 1400.0},
        {"event": "started", "rank": 0},
        {"event": "exited", "rank": 0, "exit_code": 0},
        "[rank 0] step 119",
        "[rank 0+] a part of a line",
        "[rank 0~] 40 %",
        '[rank 0] {"stepset": {"step": 119}}',
    ],
)
def test_progress_of_a_pod_ends_the_hang(item: dict[str, Any] | str) -> None:
    ranks = hangs()
    assert feed(ranks, "uid-0", item)
    assert status(ranks).hang is None


def test_the_report_of_joins_is_no_progress() -> None:
    ranks = hangs()
    feed(ranks, "uid-0", {"event": "joins", "rank": 0, "at": 1400.0, "gpu": "", "groups": []})
    assert status(ranks).hang is not None


@pytest.mark.parametrize("item", ["[node 0] a message of the agent", "[launcher] a warning of torchrun"])
def test_lines_of_launchers_are_no_progress_of_a_rank(item: str) -> None:
    ranks = hangs()
    feed(ranks, "uid-0", item)
    assert status(ranks).hang is not None


def test_the_order_in_a_chunk_decides() -> None:
    ranks = StalledRanks()
    feed(ranks, "uid-0", "[rank 0] step 118", {"event": "started", "rank": 0}, WAITS)
    feed(ranks, "uid-1", SLEEPS, {"event": "resumed", "at": 1.0}, "[rank 1] step 119", SLEEPS)
    assert status(ranks).hang is not None
    feed(ranks, "uid-1", SLEEPS, "[rank 1] step 120")
    assert status(ranks).hang is None


def test_a_line_that_another_pod_prints_for_a_rank_is_progress_of_the_rank() -> None:
    ranks = hangs()
    feed(ranks, "uid-launcher", "[rank 1] step 119")
    assert status(ranks).hang is None


def test_launchers_that_wait_for_a_node_name_the_ranks_that_have_not_joined() -> None:
    ranks = StalledRanks()
    waits = {**stalled(0, process(kind="launcher")), "master": "10.0.0.3:29500"}
    del waits["rank"]
    feed(ranks, "uid-0", waits)
    pending = RUNS.with_(ranks=tuple(replace(row, state="Pending") for row in ROWS))
    found = status(ranks, pending).hang
    assert found is not None
    assert (found.kind, found.master) == ("NeverJoined", "10.0.0.3:29500")
    assert [(group.ranks, group.state, group.guilty) for group in found.groups] == [
        ((0,), "rendezvous", False),
        ((1,), "absent", True),
    ]
    assert status(ranks).hang is None  # the ranks have started since


def test_a_pod_cannot_report_ranks_of_another_pod() -> None:
    ranks = StalledRanks()
    feed(ranks, "uid-0", WAITS, SLEEPS)
    assert status(ranks).hang is None


def test_evidence_of_an_earlier_attempt_does_not_count() -> None:
    ranks = hangs()
    assert ranks.of(ROWS, {"node-0": "uid-2", "node-1": "uid-3"}) == {}
    ranks.clear()
    assert not ranks


def test_a_pod_keeps_the_evidence_of_a_limited_number_of_ranks() -> None:
    ranks = StalledRanks()
    feed(ranks, "uid-0", *(stalled(n) for n in range(1000)))
    rows = [RankStatus(f"rank {n}", n, "node-0", state="Running") for n in range(1000)]
    assert len(ranks.of(rows, PODS)) == 256


def test_a_busy_rank_is_a_note_without_times_and_no_hang() -> None:
    ranks = hangs()
    feed(ranks, "uid-1", BUSY)
    found = status(ranks)
    assert found.hang is None
    assert found.notes == (
        "no rank makes visible progress, but rank 1 in load (data.py:17) still works, and rank 0 waits in all_reduce"
        " #1185; stepset stacks a-1 shows all stacks",
    )


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RESTARTING, Phase.SUCCEEDED])
def test_a_run_that_does_not_run_does_not_hang(phase: Phase) -> None:
    assert status(hangs(), RUNS.with_(phase=phase)).hang is None


def test_a_hang_is_known_for_a_moment_after_its_end() -> None:
    hang = the_hang()
    known = KnownHang().see(hang, 10.0).see(None, 20.0).see(None, 25.0)
    assert (known.at(49.0), known.at(51.0)) == (hang, None)
    assert known.see(hang, 60.0).at(1000.0) == hang
    assert KnownHang().at(1000.0) is None


def test_a_failure_names_the_hang_that_was_known() -> None:
    late = Failure(
        FailureKind.DEADLINE_EXCEEDED, "the run took longer than its deadline of 1h.", "Set a longer deadline."
    )
    found = with_known_hang(late, the_hang())
    assert found.message == (
        "the run took longer than its deadline of 1h; before, the run had made no progress for 5 min 10 s: rank 1 has"
        " not joined; sleeping in load data.py:17."
    )
    assert found.advice == "data.py:17 on rank 1 blocks all other ranks."
    assert with_known_hang(found, the_hang()) == found
    assert with_known_hang(found, replace(the_hang(), silent=320.0)) == found  # the pause has become longer
    other = Failure(FailureKind.USER_ERROR, "rank 0 exited with code 1: ValueError", "Fix it.", error="ValueError")
    assert with_known_hang(other, the_hang()).advice == "Fix it."
    timed_out = Failure(
        FailureKind.USER_ERROR, "rank 0 exited with code 1", "Fix it.", error="Timed out waiting 1800000ms"
    )
    assert with_known_hang(timed_out, the_hang()).advice.startswith("data.py:17 on rank 1")
    assert with_known_hang(other, None) == other


def test_a_status_with_a_hang_can_be_stored() -> None:
    found = status(hangs())
    assert RunStatus.from_dict(json.loads(json.dumps(found.to_dict()))) == found


STOP_WAITS, STOP_SLEEPS = ({**event, "stop": True, "silent": 40.0} for event in (WAITS, SLEEPS))
CANCELLED = Failure(FailureKind.CANCELLED, "the run was cancelled.", "Run it again.")
TIMED_OUT = Failure(FailureKind.USER_ERROR, "rank 0 exited with code 1.", "Fix it.", error="Timed out waiting 1800ms")
STOPPED = tuple(replace(row, state="Stopped", signal=15) for row in ROWS)


def stopped(*pods: tuple[str, dict[str, Any]]) -> StalledRanks:
    """The evidence of ranks whose agents have sampled and then stopped them."""
    ranks = StalledRanks()
    for pod, event in pods:
        rank = event["rank"]
        feed(ranks, pod, event, f"[rank {rank}] saving", {"event": "exited", "rank": rank, "signal": 15, "at": 1311.0})
    return ranks


def test_evidence_before_a_stop_is_valid_although_the_ranks_then_print_and_exit() -> None:
    ranks = stopped(("uid-0", STOP_WAITS), ("uid-1", STOP_SLEEPS))
    assert status(ranks).hang is None
    found = ranks.before_stop(STOPPED, PODS, CANCELLED)
    assert found is not None
    assert [group.ranks for group in found.guilty] == [(1,)]
    message = with_known_hang(CANCELLED, found).message
    assert message.startswith("the run was cancelled; before, the run had made no progress for 40 s: rank 1 has not")


def test_evidence_before_a_stop_counts_only_if_no_error_explains_the_failure() -> None:
    ranks = stopped(("uid-0", STOP_WAITS), ("uid-1", STOP_SLEEPS))
    other = Failure(FailureKind.USER_ERROR, "rank 0 exited with code 1.", "Fix it.", error="ValueError: x")
    assert ranks.before_stop(STOPPED, PODS, other) is None
    assert ranks.before_stop(STOPPED, PODS, None) is None


def test_a_rank_without_evidence_before_the_stop_has_made_progress() -> None:
    assert stopped(("uid-1", STOP_SLEEPS)).before_stop(STOPPED, PODS, CANCELLED) is None


def test_after_a_timeout_the_other_ranks_show_who_was_waited_for() -> None:
    rows = (replace(ROWS[0], state="Failed", exit_code=1), STOPPED[1])
    found = stopped(("uid-1", STOP_SLEEPS)).before_stop(rows, PODS, TIMED_OUT)
    assert found is not None
    assert [(group.ranks, group.state, group.guilty) for group in found.groups] == [
        ((0,), "timeout", False),
        ((1,), "sleeping", True),
    ]
    assert with_known_hang(TIMED_OUT, found).advice == "data.py:17 on rank 1 blocks all other ranks."
    assert stopped(("uid-1", STOP_WAITS | {"rank": 1})).before_stop(rows, PODS, TIMED_OUT) is None


@pytest.mark.parametrize("event", [{"event": "resumed", "at": 1400.0}, {"event": "started", "rank": 1}])
def test_progress_or_a_new_start_ends_the_evidence_before_a_stop(event: dict[str, Any]) -> None:
    ranks = stopped(("uid-0", STOP_WAITS), ("uid-1", STOP_SLEEPS))
    feed(ranks, "uid-1", event)
    assert ranks.before_stop(STOPPED, PODS, CANCELLED) is None
    ranks.clear()
    assert ranks.before_stop(STOPPED, PODS, CANCELLED) is None


def test_the_hang_replaces_the_message_of_a_pod_that_was_ended_because_of_it() -> None:
    error = "no progress; rank 1 waits in load (data.py:17)"
    ended = Failure(
        FailureKind.USER_ERROR, f"rank 1: {error}", "Fix it.", rank=1, exit_code=74, error=error, node="n-1"
    )
    clause = "a hang has ended the run; the run had made no progress for 5 min 10 s: rank 1 has not joined; sleeping in"
    found = with_known_hang(ended, the_hang())
    assert found.message == f"{clause} load data.py:17."
    assert found.advice == "data.py:17 on rank 1 blocks all other ranks."
    machine = replace(ended, kind=FailureKind.INFRASTRUCTURE, exit_code=75)
    assert with_known_hang(machine, the_hang()).message == f"{clause} load data.py:17; the suspect node is n-1."
