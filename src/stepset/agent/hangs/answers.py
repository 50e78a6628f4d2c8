"""Asks the processes of ranks for their stacks and collectives, and parses the answers.

The training code can write to the files of the hook, too. Therefore everything that is read has a limit, and an error
concerns only the process whose file caused the error.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stepset.agent.errors import IF_POSSIBLE
from stepset.agent.hangs.collectives import COLLECTIVES
from stepset.agent.hangs.hook import SIGNAL, STACKS
from stepset.agent.hangs.processes import (
    Process,
    below,
    files,
    handles_signal,
    is_in_handler,
    name_kinds,
    running,
    send,
    why_no_hook,
)

_WAIT = 2.0  # seconds in which the processes must answer
_MOST_THREADS, _MOST_FRAMES, _WIDTH = 100, 64, 300
_STACKS_LIMIT, _DUMP_LIMIT = 4 << 20, 16 << 20  # bytes of one process
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]{1,16})(?: \[(.{0,100}?)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.{0,1000})", line (\d{1,9}|\?\?\?) in (.{1,500})')


if TYPE_CHECKING:
    Reader = Callable[[Iterable[bytes]], list[dict[str, Any]]]


class Answer:
    """The answer of one process: its stacks and the dumps of its recorder.

    Args:
        process: the process.
        directory: the directory of the hook.
        until: the time (`time.monotonic`) until which the agent waits for another reader of the files.
        stacks: whether to ask for the stacks.
        read: returns `collectives` for the dumps of the recorder. By default, `recorder.digest`.
    """

    def __init__(
        self, process: Process, directory: str, until: float, *, stacks: bool = True, read: Reader | None = None
    ) -> None:
        self.process = process
        self.why = ""
        self.threads: list[dict[str, Any]] = []
        self.collectives: list[dict[str, Any]] = []
        self.holds_gil = False
        self.size = 0  # bytes that the process has written for this answer
        self._directory = directory
        self._until = until
        self._read = read
        self._size = -1  # of the stacks at the last look
        self._stacks = self._dump = -1
        self._main = ""
        found: dict[str, tuple[int, str]] = {}
        for fd, path in files(process.pid):
            for prefix in (STACKS, COLLECTIVES):
                if os.path.basename(path.replace("/memfd:", "/")).startswith(prefix):
                    found[prefix] = fd, os.path.basename(path).rpartition(prefix)[2].partition("-")[0]
        if stacks:
            self._ask_for_stacks(found.get(STACKS))
        if COLLECTIVES in found and process.state not in "Tt":
            self._ask_for_collectives(*found[COLLECTIVES])

    def _ask_for_stacks(self, found: tuple[int, str] | None) -> None:
        pid = self.process.pid
        if self.process.state in "Tt":
            self.why = "stopped by a signal"
        elif found is None or not handles_signal(pid):
            self.why = why_no_hook(pid, self._directory)
        else:
            self._main = found[1]
            self._stacks = self._open(found[0])
            if self._stacks >= 0:
                with IF_POSSIBLE:
                    send(self.process, SIGNAL)

    def _ask_for_collectives(self, fd: int, pipe: str) -> None:
        self._dump = self._open(fd)
        if self._dump >= 0:
            with IF_POSSIBLE:
                request = os.open(f"/proc/{self.process.pid}/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
                if stat.S_ISFIFO(os.fstat(request).st_mode):
                    os.write(request, b"1")
                os.close(request)

    def _open(self, fd: int) -> int:
        """Opens and empties a file of the process. Another process that samples the rank has a lock on the file."""
        import fcntl

        try:
            file = os.open(f"/proc/{self.process.pid}/fd/{fd}", os.O_RDWR | os.O_NONBLOCK)
            if os.fstat(file).st_nlink:  # A file with a name on disk may be another file, which must not be emptied.
                raise OSError(errno.EINVAL, "not a file of the hook")
            while True:
                with IF_POSSIBLE:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.ftruncate(file, 0)
                    return file
                if time.monotonic() > self._until:
                    break
                time.sleep(0.05)
            os.close(file)
            self.why = "another process reads its stacks"
        except OSError as error:
            self.why = f"its files cannot be read: {error.strerror}"
        return -1

    def is_complete(self) -> bool:
        """Returns whether the process has written everything."""
        size = os.fstat(self._stacks).st_size if self._stacks >= 0 else 0
        same, self._size = size == self._size and bool(size), size
        if self._stacks >= 0 and (not same or is_in_handler(self.process.pid)):
            return False
        return self._dump < 0 or _last_byte(self._dump) == b"\0"

    def read(self) -> None:
        """Reads what the process has written, and closes the files."""
        if self._stacks >= 0:
            self.size = os.fstat(self._stacks).st_size
            text = _read(self._stacks, _STACKS_LIMIT).decode("utf-8", "replace")
            self.threads = threads_in(text, self._main, self._directory)
            if not self.threads:
                self.why = f"it has not answered within {_WAIT:g} s"
        if self._dump >= 0:
            from stepset.agent.hangs.recorder import digest

            size, data = os.fstat(self._dump).st_size, _read(self._dump, _DUMP_LIMIT)
            self.size += size
            # The thread of the hook writes a line as soon as it has the GIL.
            self.holds_gil = not data and bool(self.threads and self.threads[0]["frames"])
            if data.endswith(b"\0") and size <= _DUMP_LIMIT:
                self.collectives = (self._read or digest)(data[:-1].split(b"\n"))


def _last_byte(file: int) -> bytes:
    size = os.fstat(file).st_size
    return os.pread(file, 1, size - 1) if size else b""


def _read(file: int, limit: int) -> bytes:
    parts, at = [], 0
    with IF_POSSIBLE:
        while at < limit:
            data = os.pread(file, min(limit - at, 1 << 20), at)
            if not data:
                break
            parts.append(data)
            at += len(data)
        os.ftruncate(file, 0)
    os.close(file)
    return b"".join(parts)


def threads_in(text: str, main: str, directory: str) -> list[dict[str, Any]]:
    """Parses the stacks that faulthandler has written. Ignores all lines of any other form.

    Args:
        text: the text of faulthandler.
        main: the identifier of the main thread, in hexadecimal digits.
        directory: the directory of the hook, whose own thread is omitted.
    """
    threads: list[tuple[bool, dict[str, Any]]] = []
    frames: list[list[Any]] = []
    known: set[str] = set()
    for line in text.split("\n"):
        if line.startswith("  "):
            frame = _FRAME.match(line) if len(frames) < 2 * _MOST_FRAMES else None
            if frame:
                number = int(frame[2]) if frame[2].isdigit() else 0
                frames.append([frame[3][:_WIDTH], frame[1][-_WIDTH:], number])
            continue
        thread = _THREAD.match(line)
        # A process in state D answers twice as soon as another of its threads receives the signal.
        if thread and len(threads) < _MOST_THREADS + 1 and thread[1] not in known:
            known.add(thread[1])
            frames = []
            is_main = thread[1].lstrip("0") == main
            threads.append((is_main, {"name": "main" if is_main else thread[2] or "", "frames": frames}))
        elif thread:
            frames = []
    own = os.path.join(directory, "collectives.py")[-_WIDTH:]
    kept = [each for each in threads if each[0] or all(frame[1] != own for frame in each[1]["frames"])]
    for _, each in kept:
        each["frames"] = middle_cut(each["frames"], _MOST_FRAMES)
    return [thread for _, thread in sorted(kept, key=lambda each: not each[0])]


def answers(
    ranks: Mapping[Any, int], directory: str, *, stacks: bool = True, read: Reader | None = None
) -> dict[Any, list[Answer]]:
    """Asks all processes of ranks, and waits at most _WAIT seconds for their answers.

    Args:
        ranks: the process of each rank.
        directory: the directory of the hook.
        stacks: whether to ask for the stacks, too, not only for the collectives.
        read: see `Answer`.
    """
    processes = running()
    found: dict[Any, list[Answer]] = {}
    until = time.monotonic() + _WAIT  # for all files together
    for rank, pid in ranks.items():
        family = name_kinds(below(pid, processes))
        found[rank] = [Answer(each, directory, until, stacks=stacks, read=read) for each in family]
    waiting = [answer for each in found.values() for answer in each]
    end = time.monotonic() + _WAIT
    while waiting and time.monotonic() < end:
        time.sleep(0.01)
        waiting = [answer for answer in waiting if not answer.is_complete()]
    for each in found.values():
        for answer in each:
            answer.read()
    return found


def middle_cut(frames: list[Any], most: int) -> list[Any]:
    """Returns the innermost and outermost frames. The outermost ones show what a process is."""
    return frames if len(frames) <= most else frames[: most - 3] + frames[-3:]
