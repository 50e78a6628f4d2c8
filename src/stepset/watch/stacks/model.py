"""The stacks of a run's ranks at one moment."""

from __future__ import annotations

from dataclasses import dataclass

RANK = "rank"
"""The kind of a process that is a rank itself."""
LAUNCHER = "launcher"
WORKER = "worker"
"""The kind of a DataLoader worker, or of another child that `multiprocessing` started."""


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A call that has not returned.

    Args:
        function: the name of the function, such as `Tokens.__getitem__`.
        file: the path of the file in the container or on this machine.
        line: the number of the line.
    """

    function: str
    file: str
    line: int


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
        busy: whether the process made progress between the samples: its stack or its collectives changed, or it used
            CPU time.
        gil: whether a thread holds Python's global lock for a long time, so that no other thread can run.
        threads: the Python threads. The first thread is the main thread.
        why: why there are no threads. It is empty if there are threads.
    """

    pid: int
    kind: str
    name: str = ""
    state: str = ""
    wchan: str = ""
    busy: bool = False
    gil: bool = False
    threads: tuple[StackThread, ...] = ()
    why: str = ""

    @property
    def frames(self) -> tuple[StackFrame, ...]:
        """The frames of the main thread."""
        return self.threads[0].frames if self.threads else ()


@dataclass(frozen=True, slots=True)
class StackCollective:
    """The last collective of a rank in one process group.

    Args:
        group: the name of the process group.
        description: a description of the process group, such as `default_pg`.
        backend: the backend of the process group, such as `gloo`.
        seq: the sequence number of the collective that is in flight. 0 if no collective is in flight.
        name: the name of this collective, such as `all_reduce`.
        sizes: the sizes of its tensors.
        dtype: the type of their elements.
        state: `scheduled` or `started`. It is empty if no collective is in flight.
        age: the time since the collective was created, in seconds.
        done: the sequence number of the last completed collective. 0 if there is none.
        last: the name of the last completed collective.
    """

    group: str
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
