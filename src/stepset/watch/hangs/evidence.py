"""Reads the events `stalled`, in which an agent reports what a rank without progress does.

A rank can forge events of its own pod. Therefore every type and size is checked, and a field that is invalid has its
default value. An event that does not state a time is invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepset.hang import HangFrame
from stepset.unstructured import integer, moment, rows, text
from stepset.watch.bounded_json import finite

_FRAMES, _PROCESSES, _THREADS, _COLLECTIVES = 1000, 64, 100, 64
"""The maximum number of frames of all threads, of processes, of threads of a process, and of collectives."""
_NAME, _PATH, _WHY = 100, 200, 200
"""The maximum number of characters of a name, of the end of a path, and of a reason."""
_MEMBERS, _TENSORS, _DIMENSIONS = 4096, 64, 16
"""The maximum number of ranks of a group, of tensors of a collective, and of dimensions of a tensor."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a Python process. The innermost frame comes first."""

    name: str
    frames: tuple[HangFrame, ...]


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a rank.

    Args:
        kind: rank, worker, launcher or child.
        state: the state of the process in /proc/PID/stat, such as S, R, D or T.
        wchan, syscall: where the process waits in the kernel. "" and None if this is unknown.
        busy: whether the process did some work between the samples.
        changed: whether the stack of the main thread, or the collectives, changed between the samples.
        gil: whether a thread holds the GIL and does not release it.
        threads: the Python threads. The main thread comes first.
        why: why there are no stacks.
    """

    kind: str = "rank"
    name: str = ""
    state: str = ""
    wchan: str = ""
    syscall: int | None = None
    busy: bool = False
    changed: bool = False
    gil: bool = False
    threads: tuple[Thread, ...] = ()
    why: str = ""
    pid: int = 0

    @property
    def main(self) -> tuple[HangFrame, ...]:
        """The frames of the main thread."""
        return self.threads[0].frames if self.threads else ()


@dataclass(frozen=True, slots=True)
class Collective:
    """The last collectives of a process group.

    Args:
        number: the sequence number of the first collective that has not completed. 0 if there is none.
        queued: the sequence number of the newest collective that the rank has started.
        name, dtype, elements: of this collective. `elements` is None if the sizes are unknown.
        done, last: the sequence number and the name of the last completed collective.
        p2p: whether these are sends and receives between two ranks.
        ranks: the members of the group. Empty if they are unknown.
    """

    group: str = ""
    desc: str = ""
    backend: str = ""
    number: int = 0
    name: str = ""
    dtype: str = ""
    elements: int | None = None
    done: int = 0
    queued: int = 0
    last: str = ""
    p2p: bool = False
    ranks: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """What a rank did while its pod made no progress. `rank` is None for the launcher of a pod without ranks."""

    rank: int | None
    at: float
    silent: float
    longest: float = 0.0
    step: int | None = None
    processes: tuple[Process, ...] = ()
    collectives: tuple[Collective, ...] = ()
    master: str = ""


def read_evidence(event: Mapping[str, Any]) -> RankEvidence | None:
    """Returns the evidence in an event `stalled`. Returns None if its time or its rank is invalid."""
    at, rank = moment(event, "at"), event.get("rank")
    if at is None or (rank is not None and (integer(event, "rank") is None or rank < 0)):
        return None
    budget = [_FRAMES]
    return RankEvidence(
        rank=rank,
        at=at,
        silent=_seconds(event, "silent"),
        longest=_seconds(event, "longest"),
        step=integer(event, "step"),
        processes=tuple(_process(each, budget) for each in rows(event, "processes")[:_PROCESSES]),
        collectives=tuple(_collective(each) for each in rows(event, "collectives")[:_COLLECTIVES]),
        master=text(event, "master")[:_PATH],
    )


def _seconds(event: Mapping[str, Any], name: str) -> float:
    found = finite(event.get(name))
    return 0.0 if found is None or found < 0 else float(found)


def _process(data: Mapping[str, Any], budget: list[int]) -> Process:
    busy = data.get("busy") is True
    return Process(
        kind=text(data, "kind")[:_NAME] or "rank",
        name=text(data, "name")[:_NAME],
        state=text(data, "state")[:1],
        wchan=text(data, "wchan")[:_NAME],
        syscall=integer(data, "syscall"),
        busy=busy,
        changed=data.get("changed") is True if "changed" in data else busy,
        gil=data.get("gil") is True,
        threads=tuple(
            Thread(text(each, "name")[:_NAME], tuple(_frames(each, budget)))
            for each in rows(data, "threads")[:_THREADS]
        ),
        why=text(data, "why")[:_WHY],
        pid=integer(data, "pid") or 0,
    )


def _frames(thread: Mapping[str, Any], budget: list[int]) -> Iterator[HangFrame]:
    frames = thread.get("frames")
    for frame in frames if isinstance(frames, list) else ():
        if budget[0] <= 0:
            return
        if not isinstance(frame, list) or len(frame) != 3:
            continue
        function, file, line = frame
        if isinstance(function, str) and isinstance(file, str) and integer({"line": line}, "line") is not None:
            budget[0] -= 1
            yield HangFrame(function[:_NAME], file[-_PATH:], line)


def _collective(data: Mapping[str, Any]) -> Collective:
    members = data.get("ranks")
    found = members[:_MEMBERS] if isinstance(members, list) else ()
    return Collective(
        group=_word(data.get("group")),
        desc=text(data, "desc")[:_NAME],
        backend=text(data, "backend")[:_NAME],
        number=max(0, integer(data, "seq") or 0),
        name=text(data, "name")[:_NAME],
        dtype=text(data, "dtype")[:_NAME],
        elements=_elements(data.get("sizes")),
        done=max(0, integer(data, "done") or 0),
        queued=max(0, integer(data, "queued") or 0),
        last=text(data, "last")[:_NAME],
        p2p=data.get("p2p") is True,
        ranks=frozenset(rank for rank in found if integer({"rank": rank}, "rank") is not None),
    )


def _word(value: Any) -> str:
    """Returns the name of a group, which may be a number."""
    return str(value)[:_NAME] if isinstance(value, (str, int)) else ""


def _elements(sizes: Any) -> int | None:
    """Returns the number of elements of all tensors, or None if it is unknown."""
    if not isinstance(sizes, list) or not sizes or len(sizes) > _TENSORS:
        return None
    total = 0
    for shape in sizes:
        if not isinstance(shape, list) or len(shape) > _DIMENSIONS:
            return None
        count = 1
        for size in shape:
            if integer({"size": size}, "size") is None or size < 0:
                return None
            count *= size
        total += count
    return total if finite(total) is not None else None
