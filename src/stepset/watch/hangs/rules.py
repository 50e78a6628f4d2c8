"""Classifies a run without progress by a table of rules. The first rule that applies decides.

A false alarm costs more than a hang that is not reported. Therefore no rule applies while a running rank has sent no
evidence, and a rank that works makes the result a note (`HangKind.BUSY`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stepset.hang import CollectiveCall, Hang, HangGroup, HangKind
from stepset.run_status import RankStatus
from stepset.watch.hangs.evidence import RankEvidence
from stepset.watch.hangs.places import BLOCKED_STATES, RankFacts, facts_of
from stepset.watch.hangs.waits import POINT_TO_POINT, World, blocking, elsewhere, mismatched, waited_for

_GROUPS = 20
"""The maximum number of groups of a hang. Groups of ranks that block the others are preferred."""
_RECEIVES = frozenset({"recv", "recv_object_list"})
_RUNNING, _SUCCEEDED, _PENDING = "Running", "Succeeded", "Pending"


@dataclass(frozen=True, slots=True)
class _Case:
    """What the rules use: the ranks of a run, and for which ranks each rank waits."""

    world: World
    waits: Mapping[int, frozenset[int]]

    @property
    def running(self) -> Mapping[int, RankFacts]:
        return self.world.running

    def where(self, wanted: Callable[[RankFacts], bool]) -> frozenset[int]:
        return frozenset(rank for rank, facts in self.running.items() if wanted(facts))

    @property
    def waiting(self) -> frozenset[int]:
        """The ranks that wait for other ranks."""
        return self.where(lambda facts: facts.in_collective or facts.doing == "rendezvous")

    @property
    def calls(self) -> Mapping[int, str]:
        """The function of MPI that each rank waits in. Ranks in no such function are left out."""
        return {rank: facts.call for rank, facts in self.running.items() if facts.call}

    @property
    def polling(self) -> frozenset[int]:
        """The ranks that poll, as MPI does while it waits."""
        return self.where(lambda facts: facts.place.state == "polling")


def hang_of(ranks: Sequence[RankStatus], evidence: Mapping[int, RankEvidence]) -> Hang | None:
    """Returns why a run makes no progress. Returns None if a running rank makes progress, or if nothing is known.

    Args:
        ranks: the rows of the current attempt.
        evidence: the evidence of the ranks of the current attempt that their agents report as stalled.
    """
    rows = {row.rank: row for row in ranks if row.rank is not None}
    running = {rank for rank, row in rows.items() if row.state == _RUNNING}
    if not running:
        return _rendezvous(rows, evidence)
    if not running <= evidence.keys():
        return None
    known = {rank: facts_of(evidence[rank]) for rank in sorted(running)}
    exited = frozenset(rank for rank, row in rows.items() if row.state == _SUCCEEDED)
    world = World(known, exited, frozenset(rows) - exited - running)
    case = _Case(world, waited_for(world))
    if case.where(lambda facts: facts.busy) and not (case.waiting | case.polling):
        return None
    for kind, rule in _RULES:
        if guilty := rule(case):
            return _hang(kind, guilty, case, rows)
    return None


def _busy(case: _Case) -> frozenset[int]:
    """Ranks that work. The others may wait for them, but not forever."""
    return case.where(lambda facts: facts.busy)


def _left(case: _Case) -> frozenset[int]:
    """Ranks that exited with code 0 while all others wait in a collective or in the store."""
    late = {peer for peers in case.waits.values() for peer in peers}
    by_stack = case.where(lambda facts: facts.doing in ("collective", "rendezvous") and not facts.waits)
    return case.world.exited if case.world.exited & late or (case.world.exited and by_stack) else frozenset()


def _mismatch(case: _Case) -> frozenset[int]:
    """Ranks that wait in different collectives."""
    if found := mismatched(case.world):
        return found
    if _mismatched_stacks(case) or _mismatched_calls(case):
        return frozenset(case.running)
    late = _blockers(case)
    in_collective = all(rank in case.running and case.running[rank].doing == "collective" for rank in late)
    if late and in_collective and not late <= case.calls.keys():
        return late | frozenset(case.waits)  # for example, a receive without a send, which gloo does not record
    cycle = case.waits and all(case.waits.values()) and not blocking(case.waits)
    return frozenset(case.waits) if cycle and not _elsewhere(case) else frozenset()


def _mismatched_stacks(case: _Case) -> bool:
    """Returns whether the stacks show different collectives that no recorder has seen, or receives only."""
    frames = [facts.place.frame for facts in case.running.values() if facts.doing == "collective"]
    calls = {frame.call for frame in frames if frame is not None}
    if len(frames) < len(case.running) or None in frames:
        return False
    return calls <= _RECEIVES or (len(calls) > 1 and not case.waits)


def _mismatched_calls(case: _Case) -> bool:
    """Returns whether all ranks wait in MPI, but in no call that could end.

    Which message or collective a call waits for is unknown. So ranks in the same collective may wait for each other.
    """
    calls = case.calls
    if len(calls) < len(case.running) or elsewhere(calls):
        return False
    return len(set(calls.values())) > 1 or any(call.startswith(POINT_TO_POINT) for call in calls.values())


def _elsewhere(case: _Case) -> frozenset[int]:
    """Ranks whose stack shows that they do not wait in the collective that they have enqueued."""
    found = frozenset(rank for rank in case.waits if case.running[rank].in_own_code)
    return found if len(found) < len(case.waits) else frozenset()


def _blockers(case: _Case) -> frozenset[int]:
    """The ranks that the others wait for, according to the collectives or, without these, to the stacks."""
    late = blocking(case.waits) or (_elsewhere(case) if case.waits else frozenset())
    if late:
        return late - case.world.exited
    waiting = case.waiting
    if len(case.calls) == len(case.running):
        return elsewhere(case.calls)
    return frozenset(case.running) - waiting - case.where(lambda facts: facts.doing == "exiting") if waiting else late


def _blocked(case: _Case) -> frozenset[int]:
    """Ranks that others wait for and that cannot run: stopped, in the kernel, without the GIL, or deadlocked."""

    def stuck(facts: RankFacts) -> bool:
        place = facts.place
        deadlocked = place.state == "lock" and bool(place.others) and place.frame is not None and not place.frame.call
        return place.state in BLOCKED_STATES or deadlocked

    late = _blockers(case)
    return late if late and all(rank in case.running and stuck(case.running[rank]) for rank in late) else frozenset()


def _missing(case: _Case) -> frozenset[int]:
    """Ranks that have not joined the collective that the others wait in."""
    trained = any(facts.trained or facts.waits for facts in case.running.values())
    return _blockers(case) if trained or case.where(lambda facts: facts.doing == "collective") else frozenset()


def _never_joined(case: _Case) -> frozenset[int]:
    """Ranks that have not joined the process group, while others wait for them in the rendezvous."""
    joining = case.where(lambda facts: facts.doing == "rendezvous")
    if not joining:
        return frozenset()
    return _blockers(case) or case.world.absent or joining


def _all_wait(case: _Case) -> frozenset[int]:
    """All ranks wait for each other, and each has joined."""
    return frozenset(case.running) if case.waiting == frozenset(case.running) else frozenset()


def _at_exit(case: _Case) -> frozenset[int]:
    """Ranks that have finished their work and do not exit."""
    exiting = case.where(lambda facts: facts.doing == "exiting")
    return exiting if exiting == frozenset(case.running) else frozenset()


def _idle(case: _Case) -> frozenset[int]:
    """Ranks that wait for something that is no rank. If most ranks are at one place, the others are named."""
    idle = frozenset(case.running)
    if any(not facts.evidence.processes for facts in case.running.values()):
        return frozenset()  # the agent could not look at a rank
    if case.polling and case.polling < idle:
        return idle - case.polling
    groups = _by_place({rank: case.running[rank] for rank in idle})
    largest = max(groups, key=len)
    return idle - set(largest) if len(largest) * 2 > len(idle) and len(groups) > 1 else idle


_RULES: tuple[tuple[HangKind, Callable[[_Case], frozenset[int]]], ...] = (
    (HangKind.BUSY, _busy),
    (HangKind.LEFT, _left),
    (HangKind.AT_EXIT, _at_exit),
    (HangKind.MISMATCH, _mismatch),
    (HangKind.BLOCKED, _blocked),
    (HangKind.NEVER_JOINED, lambda case: frozenset() if _trained(case) else _never_joined(case)),
    (HangKind.MISSING, _missing),
    (HangKind.ALL_WAIT, _all_wait),
    (HangKind.BLOCKED, _idle),
)
"""The rules in their order. Each returns the ranks that are the cause, or an empty set if it does not apply."""


def _trained(case: _Case) -> bool:
    return any(facts.trained or facts.waits for facts in case.running.values())


def _hang(kind: HangKind, guilty: frozenset[int], case: _Case, rows: Mapping[int, RankStatus]) -> Hang:
    known = [facts.evidence for facts in case.running.values()]
    return _report(kind, known, _last(case), tuple(_groups(guilty, case, rows)))


def _rendezvous(rows: Mapping[int, RankStatus], evidence: Mapping[int, RankEvidence]) -> Hang | None:
    """Returns the hang of a run whose launchers wait for other nodes, so that no rank has started."""
    waiting = sorted(rank for rank, row in rows.items() if row.state == _PENDING and rank in evidence)
    if not waiting or any(row.state != _PENDING for row in rows.values()):
        return None
    others = tuple(rank for rank in sorted(rows) if rank not in evidence)
    groups = [HangGroup(tuple(waiting), "rendezvous", not others, node=rows[waiting[0]].node)]
    groups += [HangGroup(others, "absent", True, node=rows[others[0]].node)] if others else []
    return _report(HangKind.NEVER_JOINED, [evidence[rank] for rank in waiting], "", tuple(groups))


def _report(kind: HangKind, known: Sequence[RankEvidence], last: str, groups: tuple[HangGroup, ...]) -> Hang:
    since = max(each.at - each.silent for each in known)
    return Hang(
        kind=kind,
        since=round(since, 3),
        silent=round(max(0.0, max(each.at for each in known) - since), 3),
        longest=max(each.longest for each in known),
        last=last,
        groups=groups,
        master=next((each.master for each in known if each.master), ""),
    )


def _last(case: _Case) -> str:
    """Returns the last completed collective of the group in which ranks wait."""
    rows = [row for facts in case.running.values() for row in facts.evidence.collectives if row.done and not row.p2p]
    groups = {row.group for facts in case.running.values() for row in facts.waits}
    best = max((row for row in rows if not groups or row.group in groups), key=lambda row: row.done, default=None)
    return f"{best.last or 'collective'} #{best.done}" if best is not None else ""


def _groups(guilty: frozenset[int], case: _Case, rows: Mapping[int, RankStatus]) -> Iterable[HangGroup]:
    found = [_group(ranks, bool(set(ranks) & guilty), case, rows) for ranks in _by_place(case.running, guilty)]
    for state, ranks in (("exited", case.world.exited), ("absent", case.world.absent)):
        if ranks:
            first = min(ranks)
            found.append(HangGroup(tuple(sorted(ranks)), state, bool(ranks & guilty), node=rows[first].node))
    kept = sorted(found, key=lambda group: not group.guilty)[:_GROUPS]
    return sorted(kept, key=lambda group: (group.guilty, group.ranks))


def _by_place(running: Mapping[int, RankFacts], guilty: frozenset[int] = frozenset()) -> list[tuple[int, ...]]:
    """Returns the ranks that are at the same place, as groups."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for rank, facts in running.items():
        call = _call(facts)
        place = facts.place
        key = (rank in guilty, _shown_state(facts), call, place.frame, place.process, place.others)
        groups.setdefault(key, []).append(rank)
    return [tuple(ranks) for ranks in groups.values()]


def _group(ranks: tuple[int, ...], guilty: bool, case: _Case, rows: Mapping[int, RankStatus]) -> HangGroup:
    facts = case.running[ranks[0]]
    place = facts.place
    return HangGroup(
        ranks=ranks,
        state=_shown_state(facts),
        guilty=guilty,
        collective=_call(facts),
        frame=place.frame,
        process=place.process,
        node=rows[ranks[0]].node,
        others=place.others,
        why=place.why if place.frame is None else "",
    )


def _shown_state(facts: RankFacts) -> str:
    if facts.place.state in BLOCKED_STATES or (facts.waits and facts.in_own_code):
        return facts.place.state
    return "collective" if facts.in_collective else facts.doing or facts.place.state


def _call(facts: RankFacts) -> CollectiveCall | None:
    """Returns the first collective that a rank waits in. Without the recorder, the stack contains its name."""
    if facts.waits:
        return facts.waits[0].call
    if facts.call:
        return CollectiveCall(facts.call)
    frame = facts.place.frame
    return CollectiveCall(frame.call) if facts.doing == "collective" and frame is not None and frame.call else None
