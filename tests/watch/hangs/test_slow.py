"""A rank that the other ranks regularly wait for is named. Ranks that are late only sometimes are not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.hang import SlowRanks
from stepset.run_status import Phase, RankStatus, RunStatus
from stepset.watch.agent_events import read_events
from stepset.watch.hangs.joins import JoinTimes, with_slow
from stepset.watch.hangs.slow import Join, RankJoins, slow_ranks
from stepset.watch.lines import Batch, Splitter

NODES = {0: "a", 1: "a", 2: "b", 3: "b"}
STEP = 1.0


def run(
    work: Callable[[int, int], float],
    *,
    clocks: Mapping[str, float] | None = None,
    notices_end: bool = False,
    per_step: int = 1,
    steps: int = 100,
) -> SlowRanks | None:
    """The result for four ranks on two nodes that wait for each other at the end of each step.

    Args:
        work: the seconds that a rank works in a step.
        clocks: how far the clock of each node is ahead.
        notices_end: whether the recorder notes the end of collectives, as that of NCCL does, up to 0.1 s too late.
        per_step: the collectives that a rank starts at the end of a step, 1 ms after each other.
    """
    noise = random.Random(1)
    joins: dict[int, dict[int, Join]] = {rank: {} for rank in NODES}
    begin = 1_800_000_000.0
    for step in range(steps):
        joined = {rank: begin + work(rank, step) + noise.uniform(0, 0.002) for rank in NODES}
        for number in range(per_step):
            at = {rank: joined[rank] + number * 0.001 for rank in NODES}
            for rank, node in NODES.items():
                ahead = (clocks or {}).get(node, 0.0)
                end = max(at.values()) + noise.uniform(0, 0.1) + ahead if notices_end else None
                joins[rank][step * per_step + number] = Join(at[rank] + ahead, end)
        begin = max(joined.values()) + per_step * 0.001
    return slow_ranks({rank: RankJoins(node, node, "", {"gloo:0": joins[rank]}) for rank, node in NODES.items()})


def test_a_rank_that_works_longer_is_named_with_its_node_and_delay() -> None:
    found = run(lambda rank, _: 1.3 if rank == 2 else 1.0)
    assert found is not None
    assert (found.ranks, found.node, found.last, found.compared) == ((2,), "b", 100, 100)
    assert found.delay == pytest.approx(0.3, abs=0.01)
    assert found.share == pytest.approx(0.3 / 1.3, abs=0.01)


@pytest.mark.parametrize("per_step", [1, 5])
def test_the_wait_counts_once_if_several_collectives_wait_at_the_same_time(per_step: int) -> None:
    found = run(lambda rank, _: 1.3 if rank == 1 else 1.0, per_step=per_step)
    assert found is not None
    assert found.share == pytest.approx(0.3 / 1.3, abs=0.03)


def test_balanced_ranks_are_not_named() -> None:
    assert run(lambda rank, step: 1.0) is None


def test_a_rank_that_is_always_last_but_costs_little_is_not_named() -> None:
    assert run(lambda rank, step: 1.05 if rank == 2 else 1.0) is None


def test_a_rank_that_is_late_in_40_percent_of_the_steps_is_not_named() -> None:
    assert run(lambda rank, step: 2.0 if rank == 2 and step % 10 < 4 else 1.0) is None


@pytest.mark.parametrize("other", [1, 3])
def test_two_ranks_that_are_late_in_turn_are_not_named(other: int) -> None:
    """Even if they are all ranks of a node: the node is late only if all its ranks are."""
    late = (2, other)
    assert run(lambda rank, step: 1.4 if rank == late[step % 2] else 1.0) is None


def test_a_node_whose_ranks_are_all_late_is_named() -> None:
    found = run(lambda rank, _: 1.3 if NODES[rank] == "b" else 1.0)
    assert found is not None
    assert (found.ranks, found.node) == ((2, 3), "b")
    assert found.delay == pytest.approx(0.3, abs=0.01)


def test_a_slow_rank_on_a_node_with_a_wrong_clock_is_named() -> None:
    found = run(lambda rank, _: 1.3 if rank == 2 else 1.0, clocks={"b": 50.0})
    assert found is not None
    assert (found.ranks, found.delay) == ((2,), pytest.approx(0.3, abs=0.01))


@pytest.mark.parametrize("ahead", [-50.0, -0.4, 0.4, 50.0])
def test_with_the_ends_of_collectives_clocks_are_compared(ahead: float) -> None:
    assert run(lambda rank, step: 1.0, clocks={"b": ahead}, notices_end=True) is None
    found = run(lambda rank, _: 1.3 if NODES[rank] == "b" else 1.0, clocks={"b": ahead}, notices_end=True)
    assert found is not None
    assert (found.ranks, found.delay) == ((2, 3), pytest.approx(0.3, abs=0.05))


@pytest.mark.parametrize("ahead", [-50.0, 50.0])
def test_without_them_a_node_with_a_wrong_clock_is_not_named(ahead: float) -> None:
    assert run(lambda rank, step: 1.0, clocks={"b": ahead}) is None


@pytest.mark.parametrize("notices_end", [False, True])
def test_a_usual_error_of_clocks_is_not_a_slow_node_if_steps_are_short(notices_end: bool) -> None:
    assert run(lambda rank, step: 0.03, clocks={"b": 0.008}, notices_end=notices_end) is None


def test_a_few_collectives_are_too_few() -> None:
    assert run(lambda rank, _: 1.3 if rank == 2 else 1.0, steps=19) is None


ROWS = tuple(RankStatus(f"rank {rank}", rank, f"pod-{node}", node, "Running") for rank, node in NODES.items())
PODS = {"pod-a": "pod-a", "pod-b": "pod-b"}


def event(rank: int, first: int = 1, **fields: Any) -> dict[str, Any]:
    """An event of a rank. Rank 3 is 0.5 s late in each step of 1 s."""
    late = 500_000 if rank == 3 else 0
    numbers, times = [first, *[1] * 99], [1_800_000_000_000_000 + first * 1_000_000 + late, *[1_000_000] * 99]
    group = {"group": "0", "backend": "gloo", "seq": numbers, "at": times}
    return {"event": "joins", "rank": rank, "at": 1.0, "gpu": str(rank), "groups": [group], **fields}


def batch_of(found: dict[str, Any]) -> Batch:
    return Batch(events=[found], between=[(0, found)])


def seen(joins: JoinTimes, found: dict[str, Any]) -> bool:
    text = f"[stepset] {json.dumps(found)}\n".encode()
    pod = "pod-b" if found["rank"] in (2, 3) else "pod-a"
    return joins.see(pod, Splitter("node 0").feed(text))


def slow(joins: JoinTimes) -> SlowRanks | None:
    return with_slow(RunStatus("a-1", "a", "kubernetes", Phase.RUNNING, ranks=ROWS), joins, PODS).slow


def test_the_events_of_all_pods_are_joined() -> None:
    joins = JoinTimes()
    for rank in range(3):
        assert seen(joins, event(rank))
        assert slow(joins) is None
    seen(joins, event(3))
    assert slow(joins) == SlowRanks((3,), "b", "3", 100, 100, 0.5, 0.5)


def test_the_event_before_counts_until_all_pods_have_reported_again() -> None:
    joins = JoinTimes()
    for rank in range(4):
        seen(joins, event(rank))
    seen(joins, event(0, first=10_000))
    assert slow(joins) is not None


def test_a_rank_that_started_again_is_unknown() -> None:
    joins = JoinTimes()
    for rank in range(4):
        seen(joins, event(rank))
    seen(joins, {"event": "started", "rank": 3, "pid": 7})
    assert slow(joins) is None


def test_the_events_of_another_pod_about_a_rank_are_ignored() -> None:
    joins = JoinTimes()
    for rank in range(3):
        seen(joins, event(rank))
    joins.see("pod-a", Splitter("node 0").feed(f"[stepset] {json.dumps(event(3))}\n".encode()))
    assert slow(joins) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_GROUPS = st.lists(
    st.dictionaries(st.sampled_from(["group", "backend", "seq", "at", "end"]), _JSON | st.lists(st.integers())),
    max_size=3,
)


@given(st.dictionaries(st.sampled_from(["rank", "gpu", "groups"]), _JSON | _GROUPS))
def test_any_event_is_read(fields: dict[str, Any]) -> None:
    joins = JoinTimes()
    for rank in range(4):
        joins.see("pod-b" if rank > 1 else "pod-a", batch_of({**event(rank), **fields}))
        slow(joins)


def test_endless_events_are_limited() -> None:
    joins = JoinTimes()
    groups = [{"group": str(n), "seq": [1] * 5000, "at": [1] * 5000} for n in range(50)]
    for rank in range(1000):
        joins.see("pod-a", batch_of(event(rank, groups=groups)))
    kept = joins._pods["pod-a"]
    assert len(kept) == 256
    assert {len(group) for known in kept.values() for group in known.merged.values()} == {128}
    assert {len(known.merged) for known in kept.values()} == {4}


def test_the_events_are_read_although_the_backend_has_checked_them() -> None:
    joins = JoinTimes()
    for rank in range(4):
        batch = Splitter("node 0").feed(f"[stepset] {json.dumps(event(rank))}\n".encode())
        batch.events = list(read_events(batch.events))  # as the local backend does
        assert joins.see("pod-b" if rank > 1 else "pod-a", batch)
    assert slow(joins) is not None
