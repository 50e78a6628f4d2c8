"""What one rank does, derived from its evidence: the collectives that it waits in, its place, whether it works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepset.hang import StackFrame
from stepset.watch.hangs.evidence import RankEvidence
from stepset.watch.hangs.frames import (
    awaited_thread,
    library_state,
    main_thread_state,
    other_user_frames,
    waits_for_worker,
)
from stepset.watch.stacks.model import StackCollective, StackProcess, own_frame

_SHELLS = frozenset({"sh", "bash", "dash"})
_OTHERS = 3
"""The maximum number of other threads in a place."""
_WORKER_LOOP = "_worker_loop"
_FETCH = "fetch"
_SLEEP, _FUTEX, _CHILD = {230, 35, 115, 101}, {202, 98}, {61, 247, 260, 95}
_SOCKET, _READ, _POLL = {45, 47, 43, 288, 207, 212}, {0, 63}, {7, 271, 23, 270, 232, 281, 22, 73, 72}
_YIELD = {24, 124}
"""System calls of Linux on x86-64 and arm64. Numbers that mean a call without a wait on the other one are harmless."""
_BY_WCHAN = (
    ("nanosleep", "sleeping"),
    ("futex", "lock"),
    ("do_wait", "child"),
    ("pipe", "pipe"),
    ("sk_wait", "socket"),
    ("wait_woken", "socket"),
    ("unix_stream", "socket"),
    ("inet_csk_accept", "socket"),
    ("poll", "input"),
    ("select", "input"),
    ("lock_inode", "lock"),
)
_BY_SYSCALL = (
    (_SLEEP, "sleeping"),
    (_FUTEX, "lock"),
    (_CHILD, "child"),
    (_SOCKET, "socket"),
    (_READ, "input"),
    (_POLL, "input"),
)
_OWN_STATES = frozenset({"sleeping", "child", "pipe", "socket", "thread"})
"""The states in which a process does not wait in a collective. Collectives wait for locks, and poll."""
_SLEEPING = frozenset({"gloo"})
"""The backends whose threads sleep while they wait. Their last collective may look incomplete although it has ended."""
BLOCKED_STATES = frozenset({"disk", "stopped", "zombie", "gil"})
"""The states of a process that cannot run, whatever its code does."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process of a rank is. The fields are described at `HangGroup`."""

    state: str
    frame: StackFrame | None = None
    process: str = ""
    others: tuple[StackFrame, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What one running rank does.

    Args:
        waits: the collectives that have not completed.
        doing: what the main thread does: rendezvous, collective, exiting, or "" for anything else.
        call: the function of MPI that the main thread waits in, or "".
        busy: whether the rank works.
    """

    rank: int
    evidence: RankEvidence
    waits: tuple[StackCollective, ...]
    doing: str
    call: str
    busy: bool
    place: Place

    @property
    def in_collective(self) -> bool:
        """Whether the rank waits for other ranks in a collective."""
        return bool(self.waits) or self.doing == "collective"

    @property
    def in_own_code(self) -> bool:
        """Whether the stack shows that the rank waits for something else, although it may have started collectives."""
        frame = self.place.frame
        stands = self.place.state in _OWN_STATES or bool(self.place.process)
        return not self.doing and frame is not None and stands and not frame.call

    @property
    def trained(self) -> bool:
        """Whether the rank has completed a collective."""
        return any(row.done for row in self.evidence.collectives)


def facts_of(evidence: RankEvidence) -> RankFacts:
    """Returns what the rank of the evidence does."""
    own = _main_process(evidence.processes)
    main = _with_awaited_thread(own)
    processes = [main if process is own else process for process in evidence.processes]
    waits = tuple(row for row in evidence.collectives if row.seq)
    doing = "collective" if main.call else main_thread_state(main.frames)
    # A rank that waits in NCCL polls, and uses a whole core. If a rank polls in MPI, its agent does not call it busy.
    polls = doing in ("rendezvous", "collective") or any(row.backend not in _SLEEPING for row in waits)
    busy = main.changed if polls and not main.call else any(_works(process) for process in processes)
    return RankFacts(evidence.rank or 0, evidence, waits, doing, main.call, busy, _place(main, processes, doing))


def _main_process(processes: Sequence[StackProcess]) -> StackProcess:
    """Returns the process that executes the rank's script. The command of a rank can be a shell that starts Python."""
    ranks = [process for process in processes if process.kind == "rank"]
    python = [process for process in processes if process.threads and process.kind in ("rank", "child")]
    return next(iter([*(each for each in ranks if each.threads), *python, *ranks, *processes]), StackProcess())


def _with_awaited_thread(process: StackProcess) -> StackProcess:
    """Returns the process with the thread first for which its main thread waits, as if this were the main thread.

    A program can train in a thread. The kernel's state of this thread is unknown.
    """
    at = awaited_thread([thread.frames for thread in process.threads])
    if at is None:
        return process
    rest = process.threads[:at] + process.threads[at + 1 :]
    return replace(process, threads=(process.threads[at], *rest), wchan="", syscall=None)


def _works(process: StackProcess) -> bool:
    """Returns whether a process works. A process that only polls does not work."""
    if process.state in ("T", "t", "Z"):
        return False
    return process.changed or (process.busy and (bool(process.call) or not _polls(process)))


def _polls(process: StackProcess) -> bool:
    return process.syscall in _YIELD or (process.state == "R" and process.syscall in _POLL)


def _place(main: StackProcess, processes: Sequence[StackProcess], doing: str) -> Place:
    if doing == "exiting":
        return _at_exit(main, processes)
    own = _place_of(main, "")
    if own.state in BLOCKED_STATES:
        return own
    if waits_for_worker(main.frames):
        for number, worker in enumerate(_loaders(processes)):
            if _has_work(worker):
                place = _place_of(worker, f"DataLoader worker {number}")
                return place if place.frame is not None else Place(place.state, own.frame, place.process, why=place.why)
        return own
    return _of_child(own, main, processes) if own.state in ("child", "thread") else own


def _loaders(processes: Sequence[StackProcess]) -> list[StackProcess]:
    """Returns the DataLoader workers in the order of their numbers. Agents list processes in the order of their start.

    A worker without a stack is a process that cannot answer, for example because it is stopped.
    """
    workers = [process for process in processes if process.kind == "worker"]
    return [each for each in workers if not each.threads or any(f.function == _WORKER_LOOP for f in each.frames)]


def _of_child(own: Place, main: StackProcess, processes: Sequence[StackProcess]) -> Place:
    """Returns the place of a rank that waits for a child process: in the child's code, if this is Python.

    A rank that waits for a future may wait for a thread or for a process of a pool.
    """
    children = [process for process in processes if process is not main and process.kind in ("child", "worker")]
    for child in children:
        place = _place_of(child, f"child process {child.name}")
        if place.frame is not None:
            return place
    if not children or own.state == "thread":
        return own
    child = next((child for child in children if child.name not in _SHELLS), children[0])
    process = f"child process {child.name}"
    return Place("child", own.frame, process, own.others)


def _at_exit(main: StackProcess, processes: Sequence[StackProcess]) -> Place:
    """Returns what keeps the process of a rank from exiting: a thread or a child process."""
    threads = [thread.frames for thread in main.threads[1:]]
    others = tuple(other_user_frames(threads))[:_OTHERS]
    if others:
        return Place("thread", others[0], others=others[1:])
    children = [process for process in processes if process is not main and process.kind in ("child", "worker")]
    if children:
        return Place("child", None, f"child process {children[0].name}")
    return Place("exiting", own_frame(main.frames), why=main.why)


def _has_work(worker: StackProcess) -> bool:
    """Returns whether a DataLoader worker loads a batch, or cannot run. Other workers wait for the next index."""
    if not worker.threads or _kernel_state(worker) in BLOCKED_STATES:
        return True
    return any(frame.function == _FETCH for frame in worker.frames)


def _place_of(process: StackProcess, name: str) -> Place:
    frames = process.frames
    others = tuple(other_user_frames([thread.frames for thread in process.threads[1:]]))[:_OTHERS]
    if not frames and not name and process.name:
        name = process.name  # a program that is not Python
    return Place(_state(process), own_frame(frames), name, others, "" if frames or process.call else process.why)


def _state(process: StackProcess) -> str:
    """Returns what a process does, in one word of `HangGroup.state`."""
    kernel = _kernel_state(process)
    if kernel in BLOCKED_STATES:
        return kernel
    if process.call or _polls(process):
        return "polling"
    if process.state == "R" or _works(process):
        return "running"
    return library_state(process.frames) or kernel or "idle"


def _kernel_state(process: StackProcess) -> str:
    """Returns what a process waits for in the kernel, or "" if it is unknown."""
    by_state = {"D": "disk", "T": "stopped", "t": "stopped", "Z": "zombie"}.get(process.state)
    if by_state or process.gil:
        return by_state or "gil"
    by_wchan = next((state for word, state in _BY_WCHAN if word in process.wchan), "")
    return by_wchan or next((state for numbers, state in _BY_SYSCALL if process.syscall in numbers), "")
