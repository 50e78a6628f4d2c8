"""The stacks of a run's ranks at one moment, as the documents and the events of agents describe them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from stepset.hang import CollectiveCall, StackFrame
from stepset.watch.crash import in_library

RANK = "rank"
"""The kind of a process that is a rank itself."""
LAUNCHER = "launcher"
WORKER = "worker"
"""The kind of a DataLoader worker, or of another child that `multiprocessing` started."""


@dataclass(frozen=True, slots=True)
class StackThread:
    """A Python thread.

    Args:
        name: the name of the thread. It is empty if the name is unknown.
        frames: the frames. The first frame is the innermost one.
    """

    name: str
    frames: tuple[StackFrame, ...]


@dataclass(frozen=True, slots=True)
class StackProcess:
    """A process of a rank.

    Args:
        pid: the PID in the pod or on this machine.
        kind: `rank`, `worker` (a DataLoader worker, or another child that multiprocessing started), `launcher` or
            `child`.
        name: the name of the command.
        state: the state of the process, such as `S` (see proc(5)).
        wchan: the function of the kernel in which the process waits. It is empty if the function is unknown.
        syscall: the number of the system call in which the process waits, or None if it is unknown.
        busy: whether the process made progress between the samples: its stack or its collectives changed, or it used
            CPU time.
        changed: whether the stack of the main thread, or the collectives, changed between the samples.
        gil: whether a thread holds Python's global lock for a long time, so that no other thread can run.
        threads: the threads. The first thread is the main thread. If the process is not Python, a debugger of its image
            has read them.
        call: the function of MPI in which the main thread was during all samples, such as `MPI_Recv`. It is empty if
            the main thread was in no single call, or if this is unknown.
        waits: what the process waits for, such as `reading from socket 10.0.0.3:41234`. It is empty if the process has
            a Python stack.
        files: the open files of a process without a Python stack: the descriptor and the name of each.
        why: why there is no Python stack. It is empty if there is one.
    """

    pid: int = 0
    kind: str = "child"
    name: str = ""
    state: str = ""
    wchan: str = ""
    syscall: int | None = None
    busy: bool = False
    changed: bool = False
    gil: bool = False
    threads: tuple[StackThread, ...] = ()
    call: str = ""
    waits: str = ""
    files: tuple[str, ...] = ()
    why: str = ""

    @property
    def frames(self) -> tuple[StackFrame, ...]:
        """The frames of the main thread."""
        return self.threads[0].frames if self.threads else ()


@dataclass(frozen=True, slots=True)
class StackCollective:
    """The last collectives of a rank in one process group.

    Args:
        group: the name of the process group.
        description: a description of the process group, such as `default_pg`.
        backend: the backend of the process group, such as `gloo`.
        seq: the sequence number of the first collective that is in flight. 0 if no collective is in flight.
        name: the name of this collective, such as `all_reduce`.
        sizes: the sizes of its tensors. It is empty if the sizes are unknown.
        dtype: the type of their elements.
        state: `scheduled` or `started`. It is empty if no collective is in flight.
        age: the time since the collective was created, in seconds.
        done: the sequence number of the last completed collective. 0 if there is none.
        last: the name of the last completed collective.
        queued: the sequence number of the last collective that the rank has started.
        p2p: whether these are sends and receives between two ranks.
        ranks: the members of the group. It is empty if the members are unknown.
    """

    group: str = ""
    description: str = ""
    backend: str = ""
    seq: int = 0
    name: str = ""
    sizes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    state: str = ""
    age: float = 0.0
    done: int = 0
    last: str = ""
    queued: int = 0
    p2p: bool = False
    ranks: tuple[int, ...] = ()

    @property
    def call(self) -> CollectiveCall:
        """The collective in flight, as a hang describes it."""
        # new_group without group_desc: undefined
        group = self.description if self.description not in ("", "undefined") else self.group
        elements = sum(map(math.prod, self.sizes))
        known = elements if self.sizes and elements < 2**63 else None
        return CollectiveCall(self.name, self.seq, group, self.backend, self.dtype, known)


@dataclass(frozen=True, slots=True)
class RankStacks:
    """The processes and the collectives of a rank.

    Args:
        rank: the rank.
        pod: the pod of the rank.
        node: the node or the machine of the pod. It is empty if it is unknown.
        processes: the processes of the rank.
        collectives: the last collective of each process group.
        why: why there are no processes. It is empty if there are processes.
    """

    rank: int
    pod: str = ""
    node: str = ""
    processes: tuple[StackProcess, ...] = ()
    collectives: tuple[StackCollective, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class RunStacks:
    """The stacks of the ranks of a run.

    Args:
        run: the name of the run.
        at: when the stacks were read, in seconds since the epoch.
        ranks: the ranks whose stacks were read, in ascending order.
        problems: one line for each pod or rank whose stacks could not be read.
    """

    run: str
    at: float
    ranks: tuple[RankStacks, ...] = ()
    problems: tuple[str, ...] = ()


def own_frame(frames: Iterable[StackFrame]) -> StackFrame | None:
    """Returns the innermost frame that belongs neither to a library nor to Python, with the function that it calls.

    Returns None if there is none.

    Args:
        frames: the frames of a thread. The first frame is the innermost one.

    >>> library = StackFrame("backward", "/a/site-packages/torch/_tensor.py", 1)
    >>> own_frame([library, StackFrame("step", "/app/train.py", 11)])
    StackFrame(function='step', file='/app/train.py', line=11, call='backward')
    """
    call = ""
    for frame in frames:
        if frame.function == "_bootstrap" and frame.file.endswith("/multiprocessing/process.py"):
            return None  # the frames that called this function belong to the parent
        if not in_library(frame.file):
            return replace(frame, call=call)
        call = frame.function if frame.function != "wrapper" else call
    return None
