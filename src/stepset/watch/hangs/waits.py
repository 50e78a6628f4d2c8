"""Which rank waits for which other ranks, derived from the sequence numbers of their collectives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepset.watch.hangs.places import RankFacts
from stepset.watch.stacks.model import StackCollective

_PEER = re.compile(r"(?P<own>\d{1,6})\s*(?:->|<-)\s*(?P<peer>\d{1,6})")
"""The ranks in the name of a send or receive of NCCL, such as `recv 1<-0`."""
_SAME_SIZE = ("all_reduce", "allreduce", "reduce", "broadcast")
"""The collectives to which all ranks pass the same number of elements. `reduce_scatter` is not one of them."""
_DEFAULT = "default_pg"
POINT_TO_POINT = tuple(f"MPI_{name}" for name in ("Recv", "Send", "Ssend", "Rsend", "Probe", "Mprobe", "Mrecv", "Wait"))
"""The beginnings of the functions of MPI that wait for one other rank, or for requests."""
_FINALIZE = "MPI_Finalize"


@dataclass(frozen=True, slots=True)
class World:
    """The ranks of a run.

    Args:
        running: what the running ranks do.
        exited: the ranks that exited with code 0.
        absent: the ranks that do not run for another reason, for example because their pod has not started.
    """

    running: Mapping[int, RankFacts]
    exited: frozenset[int] = frozenset()
    absent: frozenset[int] = frozenset()

    @property
    def all(self) -> frozenset[int]:
        return frozenset(self.running) | self.exited | self.absent


def waited_for(world: World) -> dict[int, frozenset[int]]:
    """Returns the ranks for which each rank in a collective waits. The set is empty if all have joined."""
    return {
        rank: frozenset(peer for row in facts.waits for peer in _missing(row, rank, world))
        for rank, facts in world.running.items()
        if facts.waits
    }


def _missing(row: StackCollective, rank: int, world: World) -> Iterable[int]:
    """Returns the members of a group that have not joined a collective in which `rank` waits."""
    if row.p2p:
        return _peers(row, rank, world)
    members = _members(row, world)
    late = [peer for peer in members if peer != rank and not _joined(peer, row, world)]
    if late or members == world.all or row.ranks:
        return late
    # The members are unknown, and all known members have joined. Another rank has no collective of the group yet.
    return [peer for peer in world.all - members if peer not in world.running or not _row_of(peer, row, world)]


def _members(row: StackCollective, world: World) -> frozenset[int]:
    """Returns the known members of a group. Without a list of members, these are the ranks with a collective in it."""
    if row.description == _DEFAULT or row.group == "0":
        return world.all
    if row.ranks:
        return frozenset(row.ranks) & world.all
    return frozenset(rank for rank in world.running if _row_of(rank, row, world))


def _row_of(rank: int, row: StackCollective, world: World) -> StackCollective | None:
    rows = world.running[rank].evidence.collectives
    return next((each for each in rows if (each.group, each.p2p) == (row.group, row.p2p)), None)


def _joined(rank: int, row: StackCollective, world: World) -> bool:
    """Returns whether a rank has enqueued or completed the collective `row`."""
    if rank not in world.running:
        return False
    own = _row_of(rank, row, world)
    return own is not None and max(own.seq, own.done, own.queued) >= row.seq


def _peers(row: StackCollective, rank: int, world: World) -> Iterable[int]:
    """Returns the rank for which a send or receive waits. If it is unknown, returns the ranks that do not wait."""
    if found := _PEER.search(row.name):
        numbers = {int(found["own"]), int(found["peer"])} - {rank}
        return numbers & world.all
    others = [each for each in world.all - {rank} if each not in world.running or not world.running[each].waits]
    return others or [each for each in world.all - {rank} if not _same_direction(row, world.running[each])]


def _same_direction(row: StackCollective, other: RankFacts) -> bool:
    """Returns whether another rank waits in the same kind of call, such as a receive. Then neither helps the other."""
    return any(each.p2p and each.name.split()[:1] == row.name.split()[:1] for each in other.waits)


def blocking(waits: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Returns the ranks that others wait for, and that wait for no rank themselves.

    >>> sorted(blocking({0: frozenset({2}), 1: frozenset({3}), 2: frozenset({3})}))
    [3]
    """
    return frozenset(peer for peers in waits.values() for peer in peers if not waits.get(peer))


def elsewhere(calls: Mapping[int, str]) -> frozenset[int]:
    """Returns the ranks that are in another function of MPI than most ranks, or have not finished as others have.

    Args:
        calls: the function that each rank waits in.

    >>> sorted(elsewhere({0: "MPI_Barrier", 1: "MPI_Recv", 2: "MPI_Barrier"}))
    [1]
    >>> sorted(elsewhere({0: "MPI_Recv", 1: "MPI_Finalize"})), sorted(elsewhere({0: "MPI_Recv", 1: "MPI_Barrier"}))
    ([0], [])
    """
    finished = {rank for rank, call in calls.items() if call == _FINALIZE}
    if finished:
        return frozenset(calls) - finished
    name, count = Counter(calls.values()).most_common(1)[0] if calls else ("", 0)
    return frozenset(rank for rank in calls if calls[rank] != name and count * 2 > len(calls))


def mismatched(world: World) -> frozenset[int]:
    """Returns the ranks of a group that have called different collectives under the same sequence number."""
    calls: dict[tuple[str, int], dict[int, StackCollective]] = {}
    for rank, facts in world.running.items():
        for row in facts.waits:
            if not row.p2p:
                calls.setdefault((row.group, row.seq), {})[rank] = row
    for (_, number), rows in calls.items():
        first = next(iter(rows.values()))
        if any(_differs(row, first) for row in rows.values()):
            return frozenset(rows)
        for rank in world.running:
            other = _row_of(rank, first, world)
            if other is not None and other.done == number and other.last and other.last != first.name:
                return frozenset({*rows, rank})
    return frozenset()


def _differs(row: StackCollective, other: StackCollective) -> bool:
    if row.name != other.name:
        return True
    if (row.dtype and other.dtype and row.dtype != other.dtype) or row.name not in _SAME_SIZE:
        return bool(row.dtype and other.dtype and row.dtype != other.dtype)
    sizes = row.call.elements, other.call.elements
    return None not in sizes and sizes[0] != sizes[1]
