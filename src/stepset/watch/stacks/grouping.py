"""Groups ranks, and the other processes of ranks, whose stacks are equal. Contains only pure functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from stepset.hang import StackFrame
from stepset.watch.crash import in_library
from stepset.watch.stacks.model import LAUNCHER, RANK, RankStacks, StackCollective, StackProcess, own_frame

Member = tuple[RankStacks, StackProcess | None]


@dataclass(frozen=True)
class StackGroup:
    """Processes of ranks with equal stacks.

    Args:
        ranks: the ranks, in ascending order.
        members: the ranks and their processes. A rank without a process has None. The first member represents the
            group.
        same_lines: whether the stacks of all members have the same lines. If not, only their functions are equal.
    """

    ranks: tuple[int, ...]
    members: tuple[Member, ...]
    same_lines: bool = True

    @property
    def process(self) -> StackProcess | None:
        """The process that represents the group."""
        return self.members[0][1]

    @property
    def frames(self) -> tuple[StackFrame, ...]:
        """The frames of the main thread of this process. The first frame is the innermost one."""
        return self.process.frames if self.process else ()

    @property
    def collective(self) -> StackCollective | None:
        """The collective that the first rank of the group waits in. None if there is none."""
        return waiting_in(self.members[0][0])

    @property
    def why(self) -> str:
        """Why there are no frames. It is empty if there are frames."""
        rank, process = self.members[0]
        return "" if self.frames else (process.why if process else rank.why)


def waiting_in(rank: RankStacks) -> StackCollective | None:
    """Returns the collective in flight that a rank has waited in longest, or None if no collective is in flight."""
    return max((each for each in rank.collectives if each.seq), key=lambda each: each.age, default=None)


def grouped(ranks: Sequence[RankStacks], limit: int = 8) -> tuple[StackGroup, ...]:
    """Returns groups of ranks whose main threads have equal stacks, the largest group first.

    If there are more than `limit` groups, ranks are also in one group if the frames of their own code are equal. If
    there are still more, only the innermost function of their own code is compared. The number of groups may exceed
    `limit`.

    Args:
        limit: the number of groups that a reader can compare.
    """
    return _grouped_at_most([(rank, next(iter(main_processes(rank)), None)) for rank in ranks], limit)


def grouped_children(ranks: Sequence[RankStacks], limit: int = 8) -> tuple[StackGroup, ...]:
    """Returns groups of the other processes of ranks, such as DataLoader workers. See `grouped`."""
    return _grouped_at_most([(rank, process) for rank in ranks for process in child_processes(rank)], limit)


def main_processes(rank: RankStacks) -> list[StackProcess]:
    """Returns the processes that are the rank itself. This is normally one process."""
    return [process for process in rank.processes if process.kind == RANK]


def child_processes(rank: RankStacks) -> list[StackProcess]:
    """Returns the processes that the rank has started. Launchers are left out."""
    return [process for process in rank.processes if process.kind not in (RANK, LAUNCHER)]


def _grouped_at_most(members: Sequence[Member], limit: int) -> tuple[StackGroup, ...]:
    groups: tuple[StackGroup, ...] = ()
    for key in (_by_stack, _by_own_frames, _by_own_function):
        groups = _grouped(members, key)
        if len(groups) <= limit:
            break
    return groups


def _grouped(
    members: Iterable[Member], key: Callable[[RankStacks, StackProcess | None], Hashable]
) -> tuple[StackGroup, ...]:
    found: dict[Hashable, list[Member]] = {}
    for rank, process in members:
        kind = process.kind if process else ""
        found.setdefault((kind, _reason(rank, process), key(rank, process)), []).append((rank, process))
    groups = (
        StackGroup(
            ranks=tuple(sorted({rank.rank for rank, _ in each})),
            members=tuple(each),
            same_lines=len({process.frames if process else () for _, process in each}) == 1,
        )
        for each in found.values()
    )
    return tuple(sorted(groups, key=lambda group: (-len(group.members), group.ranks)))


def _by_stack(rank: RankStacks, process: StackProcess | None) -> Hashable:
    waits = _collective(rank, process)
    return (process and (process.frames, process.call, process.waits), waits and (waits.group, waits.name, waits.seq))


def _by_own_frames(rank: RankStacks, process: StackProcess | None) -> Hashable:
    frames, waits = process.frames if process else (), _collective(rank, process)
    own = tuple(frame for frame in frames if not in_library(frame.file))
    return (own or frames, waits and (waits.group, waits.name))


def _by_own_function(rank: RankStacks, process: StackProcess | None) -> Hashable:
    frames, waits = process.frames if process else (), _collective(rank, process)
    frame = own_frame(frames) or next(iter(frames), None)
    return (frame and (frame.function, frame.file), waits and (waits.group, waits.name))


def _collective(rank: RankStacks, process: StackProcess | None) -> StackCollective | None:
    return waiting_in(rank) if process is not None and process.kind == RANK else None


def _reason(rank: RankStacks, process: StackProcess | None) -> Hashable:
    """Returns what distinguishes processes without frames. It is empty if there are frames."""
    if process is None:
        return rank.why or "no process"
    return "" if process.frames else (process.why, process.state, process.wchan)
