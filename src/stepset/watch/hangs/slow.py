"""Finds the ranks that the other ranks wait for, from the times at which they join collectives. Pure functions.

A collective in which all ranks wait for each other cannot end before its last rank has joined. Ranks of one node share
a clock. The clocks of nodes are compared through the completion of collectives, which the recorder of NCCL notes: it
is at the same moment on all nodes. The recorder of gloo notes no completion. Then the clocks are taken as they are,
unless the ranks of a node would keep the others waiting nearly all the time, which is a wrong clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import inf
from statistics import median

from stepset.hang import SlowRanks

_COMPARED, _FEWEST = 100, 20
"""The maximum number of compared collectives, and the minimum number for a comparison of two clocks."""
_LAST, _SHARE = 50, 0.1
"""A rank is slow if it is the last in more than this number of the last 100 collectives, and the other ranks wait for
it for more than this fraction of the time. The fraction is that of a step, because all steps contain the wait. The
number is the same if fewer collectives are compared, because two ranks that are late in turn must not be named."""
_NOTICED = 0.01
"""A rank is the last if it joins later by more than this fraction of the mean time between collectives."""
_CLOCK_ERROR = 0.02
"""The number of seconds by which clocks, and the comparison of clocks, can be wrong without being noticed."""
_WRONG_CLOCK = 0.9
"""The fraction of the time above which a wait is a difference between clocks."""


@dataclass(frozen=True, slots=True)
class Join:
    """When a rank joined a collective, and when its recorder noticed the end of the collective, in seconds."""

    at: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class RankJoins:
    """When a rank joined its last collectives.

    Args:
        node: the node of the rank.
        clock: identifies the clock. Ranks with the same value share a clock.
        gpu: the GPU of the rank, or "".
        groups: for each process group, the joins by the sequence numbers of the collectives.
    """

    node: str
    clock: str
    gpu: str
    groups: Mapping[str, Mapping[int, Join]]


@dataclass(frozen=True, slots=True)
class _Wait:
    """For which ranks all other ranks of a group wait: how often, how long, and for which fraction of the time."""

    ranks: tuple[int, ...]
    last: int
    compared: int
    delay: float
    share: float

    @property
    def is_slow(self) -> bool:
        return self.last > _LAST and self.share > _SHARE


def slow_ranks(ranks: Mapping[int, RankJoins]) -> SlowRanks | None:
    """Returns the rank, or the ranks of a node, that the others wait for. Returns None if there is none.

    >>> def joins(late):
    ...     return RankJoins("a", "", "", {"0": {step: Join(step + late) for step in range(100)}})
    >>> slow_ranks({0: joins(0.0), 1: joins(0.3)})
    SlowRanks(ranks=(1,), node='a', gpu='', last=100, compared=100, delay=0.3, share=0.3)
    >>> slow_ranks({0: joins(0.0), 1: joins(0.05)}) is None
    True
    """
    names = {name for joins in ranks.values() for name in joins.groups}
    found = [wait for name in sorted(names) if (wait := _slowest(name, ranks)) is not None]
    if not found:
        return None
    wait = max(found, key=lambda each: each.share)
    first = ranks[wait.ranks[0]]
    gpu = first.gpu if len(wait.ranks) == 1 else ""
    return SlowRanks(
        wait.ranks, first.node, gpu, wait.last, wait.compared, round(wait.delay, 6), round(min(1.0, wait.share), 4)
    )


def _slowest(group: str, ranks: Mapping[int, RankJoins]) -> _Wait | None:
    members = {rank: joins for rank, joins in ranks.items() if group in joins.groups}
    common = set.intersection(*(set(joins.groups[group]) for joins in members.values()))
    numbers = sorted(common)[-_COMPARED:]
    if len(members) < 2 or len(numbers) <= _LAST:
        return None
    clocks: dict[str, list[int]] = {}
    for rank, joins in members.items():
        clocks.setdefault(joins.clock, []).append(rank)
    times = {rank: [joins.groups[group][number].at for number in numbers] for rank, joins in members.items()}
    known = _offsets(group, members, clocks, numbers)
    for rank, joins in members.items():
        times[rank] = [at - known.get(joins.clock, 0.0) for at in times[rank]]
    if not known and len(clocks) > 1:
        _correct(times, clocks.values())
    nodes: dict[str, list[int]] = {}
    for rank, joins in members.items():
        nodes.setdefault(joins.node, []).append(rank)
    single = _waits(times, [[rank] for rank in members])
    whole = _waits(times, [each for each in nodes.values() if len(each) > 1])
    alone = {tuple(sorted(each)) for each in clocks.values()} if len(clocks) > 1 else set()
    slow = (wait for wait in (*single, *whole) if wait.is_slow)
    return next((wait for wait in slow if wait.ranks not in alone or wait.delay > _CLOCK_ERROR), None)


def _offsets(
    group: str, members: Mapping[int, RankJoins], clocks: Mapping[str, Sequence[int]], numbers: Iterable[int]
) -> dict[str, float]:
    """Returns how far each clock is ahead of the first one, from the ends of collectives. Returns {} without ends."""
    ends: dict[str, dict[int, float]] = {}
    for clock, ranks in clocks.items():
        for number in numbers:
            seen = [end for rank in ranks if (end := members[rank].groups[group][number].end) is not None]
            if seen:  # a recorder notices the end later than it is, never earlier
                ends.setdefault(clock, {})[number] = min(seen)
    first = next(iter(clocks))
    found = {}
    for clock in clocks:
        both = ends.get(clock, {}).keys() & ends.get(first, {}).keys()
        if len(both) < _FEWEST:
            return {}
        ahead = median(ends[clock][number] - ends[first][number] for number in both)
        found[clock] = ahead if abs(ahead) > _CLOCK_ERROR else 0.0
    return found


def _correct(times: dict[int, list[float]], clocks: Collection[Sequence[int]]) -> None:
    """Moves the times of clocks that are wrong, so that their ranks are neither late nor early."""
    for _ in clocks:
        wrong = next((wait for wait in _waits(times, clocks) if wait.share > _WRONG_CLOCK), None)
        if wrong is None:
            return
        for rank in wrong.ranks:
            times[rank] = [at - wrong.delay for at in times[rank]]


def _waits(times: Mapping[int, Sequence[float]], parts: Collection[Sequence[int]]) -> list[_Wait]:
    """Returns how long all other ranks wait for all ranks of a part, for each part for which they wait.

    Args:
        times: when each rank has joined each collective.
        parts: disjoint sets of ranks.
    """
    inside = {rank for part in parts for rank in part}
    others = [row for rank, row in times.items() if rank not in inside]
    complete = [max(row) for row in zip(*times.values(), strict=True)]
    noticed = _NOTICED * (max(complete) - complete[0]) / len(complete)
    spans: dict[Sequence[int], list[tuple[float, float]]] = {}
    for at in range(len(complete)):
        latest = nlargest(2, ((max(times[rank][at] for rank in part), tuple(part)) for part in parts))
        known = [*(row[at] for row in others), *(when for when, _ in latest[1:])]
        for _, part in latest[:1]:
            start, stop = max(known, default=inf), min(times[rank][at] for rank in part)
            if stop - start > noticed:
                spans.setdefault(part, []).append((start, stop))
    return [_wait(tuple(sorted(part)), found, complete) for part, found in spans.items()]


def _wait(ranks: tuple[int, ...], spans: Sequence[tuple[float, float]], complete: Sequence[float]) -> _Wait:
    """Returns the wait for ranks.

    Args:
        spans: the times in which the others waited. They overlap if a rank has started several collectives at once.
        complete: when all ranks had joined each collective.
    """
    waited, until = 0.0, complete[0]
    for start, stop in sorted(spans):
        waited += max(0.0, stop - max(start, until))
        until = max(until, stop)
    time = max(complete) - complete[0]
    delay = median(stop - start for start, stop in spans)
    return _Wait(ranks, len(spans), len(complete), delay, waited / time if time > 0 else 0.0)
