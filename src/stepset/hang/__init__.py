"""The classes for a hang of a run, and for ranks that slow a run down. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

HANG_CODES = (74, 75)
"""The exit codes of a pod that its agent has ended because of a hang. 75 means that the machine may be the cause."""


class HangKind(StrEnum):
    """Why a run makes no progress."""

    LEFT = "Left"
    MISMATCH = "Mismatch"
    MISSING = "Missing"
    NEVER_JOINED = "NeverJoined"
    ALL_WAIT = "AllWait"
    BLOCKED = "Blocked"
    BUSY = "Busy"
    AT_EXIT = "AtExit"


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A call that has not returned.

    Args:
        function: the name of the function, such as `Tokens.__getitem__`.
        file: the path of the file in the container or on this machine, as Python reports it.
        line: the number of the line.
        call: the function of a library that this line has called. Only the frames of a hang have this value.
    """

    function: str
    file: str
    line: int
    call: str = ""


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective, or a send or receive between two ranks, that has not completed.

    Args:
        name: the name, such as all_reduce.
        number: the sequence number in its process group. 0 if it is unknown.
        group: the description of the process group, such as default_pg.
        backend: the backend of the process group, such as gloo or nccl.
        dtype: the data type of the tensors, or an empty string.
        elements: the number of elements of the input tensors, or None if it is unknown.
    """

    name: str
    number: int = 0
    group: str = ""
    backend: str = ""
    dtype: str = ""
    elements: int | None = None


@dataclass(frozen=True, slots=True)
class HangGroup:
    """Ranks that are at the same place.

    Args:
        ranks: the ranks.
        state: what the ranks do: collective, rendezvous, polling, sleeping, lock, thread, child, pipe, socket, input,
            disk, stopped, zombie, gil, running, idle, exiting, exited or absent.
        guilty: whether the other ranks wait for these ranks, or these ranks are the only cause.
        collective: the collective that the ranks wait in, or None.
        frame: the innermost frame of the user's code, or None if it is unknown.
        process: the process that the frame belongs to, if it is not the process of the rank itself. An example is
            `DataLoader worker 1`.
        node: the node of the first rank.
        others: frames of the user's code in other threads of the process.
        why: why the frame is unknown, or an empty string.
    """

    ranks: tuple[int, ...]
    state: str
    guilty: bool = False
    collective: CollectiveCall | None = None
    frame: StackFrame | None = None
    process: str = ""
    node: str = ""
    others: tuple[StackFrame, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Hang:
    """Why a run makes no progress, as far as the stacks and collectives of its ranks show it.

    Args:
        kind: the class of the hang. Left: a rank exited with code 0 while others wait for it. Mismatch: ranks wait in
            different collectives. Missing: some ranks have not joined the collective that the others wait in.
            NeverJoined: some ranks have not joined the process group. AllWait: all ranks wait in the same collective.
            Blocked: a rank waits for a lock, a file, a child process or another thing that is no rank. AtExit: a rank
            has finished its work and does not exit. A run whose ranks are busy has a note instead of a hang.
        since: the time of the last progress, in seconds since the epoch.
        silent: the number of seconds without progress when the evidence was collected.
        longest: the longest pause before, in seconds.
        step: the last step that the training reported, or None.
        last: the last completed collective, such as `all_reduce #1184`, or an empty string.
        groups: the ranks by the place where they are.
        master: the address of the rendezvous, such as `10.0.0.3:29500`, if it is known.
    """

    kind: HangKind
    since: float
    silent: float
    longest: float
    step: int | None = None
    last: str = ""
    groups: tuple[HangGroup, ...] = ()
    master: str = ""

    @property
    def times(self) -> tuple[float, ...]:
        """The time of the last progress, and the lengths of the pauses."""
        return self.since, self.silent, self.longest

    @property
    def guilty(self) -> tuple[HangGroup, ...]:
        """The groups of ranks that block the others."""
        return tuple(group for group in self.groups if group.guilty)

    @property
    def is_infrastructure(self) -> bool:
        """Whether the nodes, the network or the storage cause the hang. Otherwise, the training code causes it.

        This is so if all ranks wait in the same collective, or if a rank that blocks the others waits for a disk. Then
        the same code may succeed on other nodes. Otherwise, a retry of the same code hangs again.

        >>> states = ("disk", "lock")
        >>> blocked = [Hang(HangKind.BLOCKED, 0, 9, 0, groups=(HangGroup((1,), state, True),)) for state in states]
        >>> [hang.is_infrastructure for hang in blocked], Hang(HangKind.ALL_WAIT, 0, 9, 0).is_infrastructure
        ([True, False], True)
        """
        blocked = self.kind is HangKind.BLOCKED and any(group.state == "disk" for group in self.guilty)
        return blocked or self.kind is HangKind.ALL_WAIT


@dataclass(frozen=True, slots=True)
class SlowRanks:
    """A rank, or all ranks of a node, that the other ranks regularly wait for.

    Args:
        ranks: the ranks.
        node: the node of the ranks.
        gpu: the GPU of the rank, or an empty string if it is unknown.
        last: in how many of the compared collectives these ranks were the last that joined.
        compared: the number of compared collectives, at most 100.
        delay: how much later than all other ranks they joined these collectives, in seconds (median).
        share: the fraction of the time in which all other ranks waited for these ranks only.
    """

    ranks: tuple[int, ...]
    node: str
    gpu: str
    last: int
    compared: int
    delay: float
    share: float

    @property
    def times(self) -> tuple[float, ...]:
        """The delay and the fraction of the time."""
        return self.delay, self.share
