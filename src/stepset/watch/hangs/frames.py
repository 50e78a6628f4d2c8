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
_JAX = (
    ("/jax/experimental/multihost_utils.py", None),
    ("/jax/_src/array.py", None),
    ("/jax/_src/api.py", "block_until_ready"),
    ("/jax/_src/interpreters/pxla.py", "__call__"),
)
"""Where a rank of JAX waits for a result, to which other ranks contribute."""
_EXIT = (
    ("/threading.py", "_shutdown"),
    ("/multiprocessing/util.py", "_exit_function"),
    ("/concurrent/futures/thread.py", "_python_exit"),
    (_C10D, "destroy_process_group"),
)
_POOL_THREAD = ("/concurrent/futures/thread.py", "_worker")
_DATALOADER = ("/torch/utils/data/dataloader.py",)
_LIBRARY_STATES = (
    ("/subprocess.py", "child"),
    ("/multiprocessing/popen_fork.py", "child"),
    ("/multiprocessing/popen_spawn_posix.py", "child"),
    ("/multiprocessing/popen_forkserver.py", "child"),
    ("/multiprocessing/pool.py", "child"),
    ("/concurrent/futures/_base.py", "thread"),
    ("/socket.py", "socket"),
    ("/ssl.py", "socket"),
    ("/http/client.py", "socket"),
    ("/multiprocessing/connection.py", "input"),
    ("/selectors.py", "input"),
)
"""What a process waits for, by the files of the frames below the user's frame."""


def _is(frame: StackFrame, file: str, function: str) -> bool:
    return frame.function == function and frame.file.endswith(file)


def below_user(frames: Sequence[StackFrame]) -> Sequence[StackFrame]:
    """Returns the frames that the innermost frame of the user's code has called. The innermost frame comes first."""
    end = next((at for at, frame in enumerate(frames) if not in_library(frame.file)), len(frames))
    return frames[:end]


def main_thread_state(frames: Sequence[StackFrame]) -> str:
    """Returns what the main thread does: rendezvous, collective, exiting, or "" for anything else."""
    if any(_is(frame, *each) for frame in frames for each in _EXIT):
        return "exiting"
    called = below_user(frames)
    if any(frame.file.endswith(_RENDEZVOUS_FILES) for frame in called):
        return "rendezvous"
    c10d = [frame.function for frame in called if frame.file.endswith((_C10D, _FUNCTIONAL))]
    if any(
        frame.file.endswith(end) and function in (None, frame.function) for frame in called for end, function in _JAX
    ):
        return "collective"
    if c10d:
        return "rendezvous" if _RENDEZVOUS & set(c10d) else "collective"
    return ""


def waits_for_worker(frames: Sequence[StackFrame]) -> bool:
    """Returns whether the main thread waits for a worker of a DataLoader."""
    return any(frame.file.endswith(_DATALOADER) for frame in below_user(frames))


def awaited_thread(stacks: Sequence[Sequence[StackFrame]]) -> int | None:
    """Returns the index of the thread for which the main thread waits, by `join` or for a future.

    Returns None if the main thread waits for no thread, or if several threads execute the user's code.

    Args:
        stacks: the frames of each thread. Those of the main thread come first.
    """
    if not stacks or library_state(stacks[0]) != "thread":
        return None
    found = [at for at, frames in enumerate(stacks) if at and own_frame(frames) is not None]
    pool = [at for at in found if any(_is(frame, *_POOL_THREAD) for frame in stacks[at])]
    chosen = pool if is_future(stacks[0]) else found
    return chosen[0] if len(chosen) == 1 else None


def is_future(frames: Sequence[StackFrame]) -> bool:
    """Returns whether the thread waits for a future of `concurrent.futures`."""
    return any(frame.file.endswith("/concurrent/futures/_base.py") for frame in below_user(frames))


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
