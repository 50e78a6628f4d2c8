"""Non-blocking input and output: an event loop, pipes, a buffered writer, streams with back-pressure, and files."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable

from stepset.agent.errors import IF_POSSIBLE
from stepset.agent.lines import ATOMIC, cut_into_writes
from stepset.agent.signals import signal

READ_SIZE = 1 << 16
_OUT_LIMIT = 1 << 20  # while more bytes than this are unwritten, `Streams` does not read its sources


class Loop:
    """Waits for file descriptors and signals, and calls the function that is registered for a file descriptor.

    It unblocks `signals` and handles them.
    """

    def __init__(self, signals: Iterable[int]) -> None:
        self._poll = select.poll()
        self._calls: dict[int, Callable[[], object]] = {}
        self._signals: list[int] = []
        inner, outer = os.pipe()
        os.set_blocking(inner, False)
        os.set_blocking(outer, False)
        signal.set_wakeup_fd(outer, warn_on_full_buffer=False)
        handled = tuple(signals)
        for number in handled:
            signal.signal(number, lambda *_: None)  # Python itself writes the number to the wake-up pipe
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        self._wake = inner
        self.watch(inner, self._read_signals)

    def watch(self, fd: int, call: Callable[[], object], mask: int = select.POLLIN) -> None:
        """Calls `call` whenever `fd` is ready or broken."""
        self._poll.register(fd, mask)
        self._calls[fd] = call

    def forget(self, fd: int) -> None:
        """Stops watching `fd`, if it is watched."""
        if self._calls.pop(fd, None):
            self._poll.unregister(fd)

    def turn(self, timeout: float) -> list[int]:
        """Waits at most `timeout` seconds for a file descriptor or a signal. Returns the received signals."""
        for fd, _ in self._poll.poll(max(0, int(timeout * 1000) + 1)):
            call = self._calls.get(fd)
            if call:
                call()
        signals, self._signals = self._signals, []
        return signals

    def _read_signals(self) -> None:
        with IF_POSSIBLE:
            self._signals += os.read(self._wake, 512)


class Out:
    """Writes lines without blocking when the reader is slow.

    Args:
        atomic: whether to cut lines with `cut_into_writes`, because other processes write to the same pipe.
        spaced: whether to write a piece only after the reader has read the previous one. mpirun forwards the result
            of each read separately, so each read must return whole lines.
    """

    def __init__(self, fd: int, *, atomic: bool = False, spaced: bool = False) -> None:
        self.fd, self._may_block = _reopen_without_blocking(fd)
        self._atomic = atomic
        self._spaced = spaced and stat.S_ISFIFO(os.fstat(fd).st_mode)
        self._queue: list[bytes | memoryview] = []
        self.pending = 0
        self.broken = False

    def put(self, lines: bytes) -> None:
        """Appends whole lines to the queue."""
        if not lines or self.broken:
            return
        pieces = cut_into_writes(lines) if self._atomic else [lines]
        self.pending += sum(map(len, pieces))
        self._queue += pieces

    def flush(self) -> None:
        """Writes as much as is possible without blocking."""
        done = 0
        try:
            while done < len(self._queue) and not (self._spaced and self.unread):
                piece = self._queue[done]
                if self._may_block and not is_ready(self.fd, select.POLLOUT):
                    break
                written = os.write(self.fd, piece[:ATOMIC] if self._may_block else piece)
                self.pending -= written
                if written < len(piece):
                    self._queue[done] = memoryview(piece)[written:]
                else:
                    done += 1
        except BlockingIOError:
            pass
        except OSError:  # the reader has ended, or the disk is full
            self.broken = True
            self.pending = 0
            self._queue = []
            return
        del self._queue[:done]

    @property
    def waits_for_reader(self) -> bool:
        """Whether a piece must wait until the reader has read the previous piece. poll(2) cannot report reads."""
        return self._spaced and self.pending > 0

    @property
    def unread(self) -> bool:
        """Whether the pipe contains bytes that the reader has not read."""
        with IF_POSSIBLE:
            return any(fcntl.ioctl(self.fd, 0x541B, b"\0\0\0\0"))  # FIONREAD
        return False


def _reopen_without_blocking(fd: int) -> tuple[int, bool]:
    """Returns a file descriptor for the same file, and whether a write to it may block.

    A pipe is opened again, because O_NONBLOCK on `fd` itself would affect every process that shares `fd`.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd, False
    if stat.S_ISFIFO(mode):
        with IF_POSSIBLE:
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK), False
    return fd, True


def is_ready(fd: int, mask: int) -> bool:
    """Returns whether an event of `mask` is pending, or `fd` is broken. Does not wait."""
    poll = select.poll()
    poll.register(fd, mask)
    return bool(poll.poll(0))


def read_pipe(size: int) -> tuple[int, int]:
    """Creates a pipe of `size` bytes. Returns its read end, which does not block, and its write end."""
    inner, outer = os.pipe()
    os.set_blocking(inner, False)
    widen(inner, size)
    return inner, outer


def widen(fd: int, size: int) -> None:
    """Enlarges a pipe above the default of 64 KiB, if the system allows it. This reduces context switches."""
    if sys.platform.startswith("linux"):
        with IF_POSSIBLE:
            fcntl.fcntl(fd, 1031, size)  # F_SETPIPE_SZ; in Python's fcntl from 3.10 on


def read_all(fd: int) -> tuple[list[bytes], bool]:
    """Returns the chunks that can be read without waiting, and whether the end of the file was reached."""
    chunks: list[bytes] = []
    while True:
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return chunks, False
        except OSError:  # The other side of a terminal is closed.
            data = b""
        if not data:
            return chunks, True
        chunks.append(data)


class Streams:
    """The standard output of a pod's agent, and the pipes (sources) whose data is written to it.

    While more than 1 MiB of data is unwritten, the sources are not read. Therefore a slow reader slows the ranks down.
    """

    def __init__(self, out: Out, loop: Loop) -> None:
        self.out = out
        self.loop = loop
        self._sources: dict[int, Callable[[], object]] = {}
        self._paused = False

    def add(self, fd: int, call: Callable[[], object]) -> None:
        """Adds a source. The function `call` reads from the source."""
        self._sources[fd] = call
        if not self._paused:
            self.loop.watch(fd, call)

    def remove(self, fd: int) -> None:
        del self._sources[fd]
        self.loop.forget(fd)

    def turn(self, timeout: float) -> list[int]:
        """Waits at most `timeout` seconds for input, output or signals. Returns the received signals."""
        if self.out.pending:
            self.loop.watch(self.out.fd, self.out.flush, select.POLLOUT)
        else:
            self.loop.forget(self.out.fd)
        if (self.out.pending > _OUT_LIMIT) != self._paused:
            self._paused = not self._paused
            for fd, call in self._sources.items():
                if self._paused:
                    self.loop.forget(fd)
                else:
                    self.loop.watch(fd, call)
        return self.loop.turn(max(0.0, timeout))


def read_regular(path: str, limit: int) -> tuple[int, bytes]:
    """Returns the size of a regular file, and at most its first `limit` bytes.

    Raises:
        OSError: the file cannot be read, or is a link, a pipe, a device or a directory.
    """
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    with open(fd, "rb") as file:
        return about.st_size, file.read(limit)


def reason_of(error: OSError) -> str:
    """Returns why `read_regular` failed. For a link, the system misleadingly reports too many levels of links."""
    return "a link, not a regular file" if error.errno == errno.ELOOP else error.strerror or str(error)


def write_file(path: str, data: bytes, flags: int = 0) -> None:
    """Writes a file. Other users cannot access a new file. `flags` are further flags of `os.open`.

    Raises:
        OSError: the file cannot be written, or is a pipe without a reader.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
