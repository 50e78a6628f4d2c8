"""Reads Python stacks: what the main thread of a rank does, and the frames of the user's code in other threads.

Sources: torch 2.15 torch/distributed, torch/utils/data; CPython 3.8 to 3.14 Lib/threading.py, Lib/subprocess.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stepset.hang import StackFrame
from stepset.watch.crash import in_library
from stepset.watch.stacks.model import own_frame

_RENDEZVOUS = {
    "init_process_group",
    "_new_process_group_helper",
    "new_group",
    "_new_group_with_tag",
    "_store_based_barrier",
}
"""The functions of torch/distributed/distributed_c10d.py that wait for other ranks in the store."""
_RENDEZVOUS_FILES = ("/torch/distributed/rendezvous.py", "/jax/_src/distributed.py")
_C10D = "/torch/distributed/distributed_c10d.py"
_FUNCTIONAL = "/torch/distributed/_functional_collectives.py"
_EXIT = (
    ("/threading.py", "_shutdown"),
    ("/multiprocessing/util.py", "_exit_function"),
    ("/concurrent/futures/thread.py", "_python_exit"),
    (_C10D, "destroy_process_group"),
)
_BOOTSTRAP = "_bootstrap"
_DATALOADER = ("/torch/utils/data/dataloader.py",)
_LIBRARY_STATES = (
    ("/subprocess.py", "child"),
    ("/multiprocessing/popen_fork.py", "child"),
    ("/multiprocessing/popen_spawn_posix.py", "child"),
    ("/multiprocessing/popen_forkserver.py", "child"),
    ("/socket.py", "socket"),
    ("/ssl.py", "socket"),
    ("/http/client.py", "socket"),
    ("/multiprocessing/connection.py", "input"),
    ("/selectors.py", "input"),
)
"""What a process waits for, by the files of the frames below the user's frame."""


def below_user(frames: Sequence[StackFrame]) -> Sequence[StackFrame]:
    """Returns the frames that the innermost frame of the user's code has called. The innermost frame comes first."""
    end = next((at for at, frame in enumerate(frames) if not in_library(frame.file)), len(frames))
    return frames[:end]


def main_thread_state(frames: Sequence[StackFrame]) -> str:
    """Returns what the main thread does: rendezvous, collective, exiting, or "" for anything else."""
    if any((function == frame.function and frame.file.endswith(end)) for frame in frames for end, function in _EXIT):
        return "exiting"
    called = below_user(frames)
    if any(frame.file.endswith(_RENDEZVOUS_FILES) for frame in called):
        return "rendezvous"
    c10d = [frame.function for frame in called if frame.file.endswith((_C10D, _FUNCTIONAL))]
    if c10d:
        return "rendezvous" if _RENDEZVOUS & set(c10d) else "collective"
    return ""


def waits_for_worker(frames: Sequence[StackFrame]) -> bool:
    """Returns whether the main thread waits for a worker of a DataLoader."""
    return any(frame.file.endswith(_DATALOADER) for frame in below_user(frames))


def waits_for_child(frames: Sequence[StackFrame]) -> bool:
    """Returns whether the main thread waits for a child process."""
    return library_state(frames) == "child"


def library_state(frames: Sequence[StackFrame]) -> str:
    """Returns what the thread waits for, if the functions of Python's library show it. Returns "" otherwise."""
    called = below_user(frames)
    found = (state for end, state in _LIBRARY_STATES if any(frame.file.endswith(end) for frame in called))
    if state := next(found, ""):
        return state
    functions = {frame.function for frame in called if frame.file.endswith("/threading.py")}
    if functions & {"join", "_wait_for_tstate_lock"}:
        return "thread"
    if functions or any(frame.file.endswith("/queue.py") for frame in called):
        return "lock"
    return ""


def other_user_frames(stacks: Sequence[Sequence[StackFrame]]) -> Iterator[StackFrame]:
    """Yields the innermost frames of the user's code in other threads."""
    for frames in stacks:
        if (found := own_frame(frames)) is not None:
            yield replace(found, call="")
