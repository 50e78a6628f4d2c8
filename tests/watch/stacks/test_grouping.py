"""Ranks with equal stacks form one group, and a group is never lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stepset.hang import StackFrame
from stepset.watch.stacks.document import read_document
from stepset.watch.stacks.grouping import grouped, grouped_children
from stepset.watch.stacks.model import RankStacks, StackProcess, StackThread, own_frame
from tests.stacks import LIBRARY, REDUCE, SLEEPS, WAITS, document, loading, process, waiting


def ranks_of(*ranks: dict[str, Any]) -> Sequence[RankStacks]:
    return read_document(document(*ranks))


def test_the_largest_group_is_first_and_the_rank_that_differs_has_its_own() -> None:
    groups = grouped(ranks_of(waiting(0), waiting(1), loading(2), waiting(3)))
    assert [group.ranks for group in groups] == [(0, 1, 3), (2,)]
    waits = groups[0].collective
    assert waits is not None
    assert waits.seq == 1185
    assert groups[1].collective is None


def test_ranks_in_different_collectives_are_in_different_groups() -> None:
    later = {**waiting(1), "collectives": [{**REDUCE, "seq": 1186}]}
    assert [group.ranks for group in grouped(ranks_of(waiting(0), later))] == [(0,), (1,)]


def test_the_workers_of_data_loaders_are_grouped_apart() -> None:
    (group,) = grouped_children(ranks_of(waiting(0), loading(1), loading(2)))
    assert group.ranks == (1, 2)
    assert group.process is not None
    assert (group.process.kind, group.frames[0].function) == ("worker", "__getitem__")


def test_ranks_without_a_stack_are_grouped_by_the_reason() -> None:
    silent = {"rank": 2, "processes": [process([], why="it does not answer")]}
    groups = grouped(ranks_of({"rank": 0}, {"rank": 1}, silent))
    assert [(group.ranks, group.why) for group in groups] == [
        ((0, 1), "its agent found no process"),
        ((2,), "it does not answer"),
    ]


def test_many_different_stacks_are_grouped_by_the_frames_of_the_own_code() -> None:
    """Ranks of a healthy run are in different places of a library, and in the same place of the script."""
    different = [{"rank": n, "processes": [process([["kernel", f"{LIBRARY}/a.py", n], *WAITS[2:]])]} for n in range(64)]
    (group,) = grouped(ranks_of(*different))
    assert (group.ranks, group.same_lines) == (tuple(range(64)), False)


def test_ranks_at_many_lines_of_one_function_are_one_group() -> None:
    different = [{"rank": n, "processes": [process([["step", "/app/train.py", n + 1]])]} for n in range(64)]
    (group,) = grouped(ranks_of(*different))
    assert (len(group.ranks), group.same_lines) == (64, False)
    assert [group.same_lines for group in grouped(ranks_of(*different[:3]))] == [True] * 3


def test_the_innermost_frame_of_the_own_code_is_found() -> None:
    frames = [StackFrame(*frame) for frame in (*WAITS, *SLEEPS)]
    assert own_frame(frames) == StackFrame("backward", "/app/train.py", 42, call="all_reduce")
    assert own_frame(frames[:2]) is None


_FRAMES = st.lists(
    st.builds(StackFrame, st.sampled_from("fg"), st.sampled_from(["/app/a.py", f"{LIBRARY}/b.py"]), st.integers(1, 3)),
    max_size=3,
).map(tuple)
_PROCESSES = st.builds(
    lambda frames, kind: StackProcess(1, kind, threads=(StackThread("", frames),)),
    _FRAMES,
    st.sampled_from(["rank", "worker", "launcher", "child"]),
)


@given(st.lists(st.lists(_PROCESSES, max_size=3).map(tuple), max_size=20), st.integers(1, 5))
def test_every_rank_is_in_one_group_and_every_child_is_counted_once(found: Any, limit: int) -> None:
    ranks = [RankStacks(number, processes=processes) for number, processes in enumerate(found)]
    groups = grouped(ranks, limit)
    assert sorted(rank for group in groups for rank in group.ranks) == list(range(len(ranks)))
    assert [len(group.members) for group in groups] == sorted((len(group.members) for group in groups), reverse=True)
    children = [process for rank in ranks for process in rank.processes if process.kind in ("worker", "child")]
    assert sum(len(group.members) for group in grouped_children(ranks, limit)) == len(children)
