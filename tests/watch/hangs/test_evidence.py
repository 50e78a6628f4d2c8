"""A rank can forge the events of its pod. The reader accepts any value, and keeps a limited amount of data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.watch.agent_events import read_events
from stepset.watch.hangs.evidence import read_evidence
from stepset.watch.hangs.places import facts_of
from stepset.watch.stacks.model import StackCollective, StackProcess
from tests.watch.hangs.evidence import SLEEP, flying, hang, process, stalled

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [*process(SLEEP), "wchan", "syscall", "gil", "why", "changed", "cpu"]
ROWS = [*flying(), "ranks", "age", "p2p"]


@given(
    st.dictionaries(st.sampled_from([*stalled(0), "master", "step"]), JSON),
    st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON), max_size=3),
    st.lists(st.dictionaries(st.sampled_from(ROWS), JSON), max_size=3),
)
@settings(deadline=None)
def test_every_event_is_read_or_left_out(
    event: dict[str, Any], processes: list[dict[str, Any]], collectives: list[dict[str, Any]]
) -> None:
    for fields in (event, {**stalled(0), "processes": processes, "collectives": collectives}):
        for read in read_events([{**fields, "event": "stalled"}]):
            if read_evidence(read["stalled"]) is not None and read.get("rank") is not None:
                hang({**fields, "event": "stalled", "rank": read["rank"]}, stalled(read["rank"] + 1, process(SLEEP)))


@pytest.mark.parametrize(
    "fields", [{"at": "now"}, {"at": -1.0}, {"at": float("nan")}, {"rank": -1}, {"rank": "0"}, {"rank": True}]
)
def test_an_event_with_an_impossible_time_or_rank_is_left_out(fields: dict[str, Any]) -> None:
    found = [read_evidence(read["stalled"]) for read in read_events([{**stalled(0), **fields}])]
    assert found in ([], [None])


def test_values_of_other_types_become_defaults() -> None:
    wrong = {"pid": "x", "kind": 3, "state": None, "busy": "yes", "threads": {"frames": []}, "syscall": 1.5}
    row = {"seq": "7", "sizes": [[-1]], "ranks": "all", "group": None, "name": 3}
    found = read_evidence({**stalled(0), "processes": [wrong, 7], "collectives": [row, "x"], "silent": "long"})
    assert found is not None
    assert found.processes == (StackProcess(),)
    assert found.collectives == (StackCollective(),)
    assert found.silent == 0.0


def test_10000_threads_and_endless_stacks_are_limited() -> None:
    deep = [["f" * 5000, "/x" * 5000, 1]] * 50_000
    found = read_evidence(stalled(0, *[process(*[deep] * 200)] * 500, collectives=[flying()] * 5000))
    assert found is not None
    frames = [frame for each in found.processes for thread in each.threads for frame in thread.frames]
    assert len(frames) <= 1000
    assert max(len(frame.function) + len(frame.file) for frame in frames) <= 300
    assert (len(found.processes), len(found.collectives)) == (64, 64)


def test_a_size_that_overflows_is_unknown() -> None:
    found = read_evidence(stalled(0, collectives=[flying(sizes=[[2**31 - 1] * 16])]))
    assert found is not None
    assert found.collectives[0].call.elements is None


def test_a_shell_that_starts_python_is_not_the_main_process() -> None:
    found = read_evidence(stalled(0, process(name="bash"), process(SLEEP, kind="child", syscall=230)))
    assert found is not None
    place = facts_of(found).place
    assert (place.state, place.frame and place.frame.file) == ("sleeping", "/app/data.py")
