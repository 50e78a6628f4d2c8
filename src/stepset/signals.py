"""Handles signals that stop a run: the interpreter writes them to a pipe, and a thread reads the pipe.

Python calls a signal handler in the main thread between two bytecodes, wherever that thread is: inside `Event.set`,
inside another handler. A handler that takes a lock that the interrupted code holds waits forever. And while the main
thread waits for a lock, Python may not call the handler at all: the kernel may deliver two signals in quick succession
to another thread, and the main thread continues to wait (CPython 3.11 and Linux 6.18, tested: one pair in five).

Therefore the handler here does nothing, and the interpreter writes the number of the signal to a pipe, in whichever
thread it arrives (signal.set_wakeup_fd; https://cr.yp.to/docs/selfpipe.html).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from stepset.errors import InfrastructureError

_Handler = Callable[[int, FrameType | None], object] | int

_END = 0  # no signal has this number
_READ_SIZE = 4096
_END_INTERVAL = 0.1
"""Seconds between two attempts to end the thread while the pipe is full."""


@contextmanager
def on_signals(numbers: Iterable[int], act: Callable[[int], None]) -> Iterator[None]:
    """Calls `act` with the number of each of these signals that arrives inside the block.

    `act` runs in a thread of its own, once per signal and in the order of their arrival; it may take locks. When the
    block is left, the thread has ended and the former handlers are restored. A signal that was ignored before stays
    ignored (nohup). Does nothing outside the main thread, where Python cannot set handlers.

    Raises:
        InfrastructureError: the system allows no more threads or open files.
        BaseException: the first error of `act`, at the end of the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Handlers that C code installed (None) are not replaced, because Python could not restore them.
    found = {number: signal.getsignal(number) for number in numbers}
    before: dict[int, _Handler] = {n: h for n, h in found.items() if h is not None and h != signal.SIG_IGN}
    pipe = _SignalPipe(frozenset(before), act)
    try:
        pipe.open()
        _active[pipe] = before
        for number in before:
            signal.signal(number, _ignore)
        yield
    finally:
        # Before the handlers are restored, so that no signal can interrupt the end of the thread.
        pipe.end()
        try:
            _restore(before)
        finally:
            _active.pop(pipe, None)
            pipe.close()
    if pipe.error is not None:
        raise pipe.error


@contextmanager
def interrupts_deferred(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` in another thread at each Ctrl-C inside the block; raises KeyboardInterrupt only at the block's end.

    Does nothing if the program handles SIGINT itself, or outside the main thread.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupts: list[int] = []

    def act(number: int) -> None:
        interrupts.append(number)
        stop()

    with on_signals((signal.SIGINT,), act):
        yield
    if interrupts:
        raise KeyboardInterrupt


class StopRequests:
    """Requests to stop a run, from any thread, even before the run exists; none is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        self._count = 0

    def attach(self, cancel: Callable[[], None]) -> None:
        """Calls `cancel` once for each earlier request, and once for each request from now on."""
        with self._lock:
            self._cancel, earlier = cancel, self._count
        for _ in range(earlier):
            cancel()

    def add(self) -> int:
        """Adds a request; returns how many there are."""
        with self._lock:
            self._count += 1
            count, cancel = self._count, self._cancel
        if cancel is not None:
            cancel()
        return count


class _SignalPipe:
    """The pipe to which the interpreter writes signals, and the thread that reads it.

    Args:
        numbers: the signals to handle; the interpreter also writes signals that have other handlers.

    Attributes:
        error: the first error of `act`.
    """

    def __init__(self, numbers: frozenset[int], act: Callable[[int], None]) -> None:
        self._numbers, self._act = numbers, act
        self._thread = threading.Thread(target=self._read_until_end, name="stepset signals", daemon=True)
        self._read_end = self._write_end = -1
        self._wakeup_before: int | None = None
        self.error: BaseException | None = None

    def open(self) -> None:
        """Opens the pipe and starts the thread."""
        try:
            self._read_end, self._write_end = os.pipe()
            os.set_blocking(self._write_end, False)
            self._thread.start()
        except (OSError, RuntimeError) as error:
            raise InfrastructureError(
                f"signals cannot be handled: {error}; see the limits of open files, processes and memory (ulimit -n,"
                " ulimit -u, ulimit -v)"
            ) from error
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)

    def end(self) -> None:
        """Ends the thread once it has acted on every signal that arrived before this call."""
        while self._thread.is_alive():
            with suppress(BlockingIOError):  # the pipe is full of signals, which the thread will read
                os.write(self._write_end, bytes((_END,)))
            self._thread.join(_END_INTERVAL)

    def close(self) -> None:
        """Acts on the signals that the thread has not read, and closes the pipe."""
        if self._read_end < 0:
            return
        if self._wakeup_before is not None:
            signal.set_wakeup_fd(self._wakeup_before, warn_on_full_buffer=False)
        os.set_blocking(self._read_end, False)
        with suppress(BlockingIOError):
            while self._act_on(os.read(self._read_end, _READ_SIZE)):
                pass
        os.close(self._read_end)
        os.close(self._write_end)

    def _read_until_end(self) -> None:
        while _END not in self._act_on(os.read(self._read_end, _READ_SIZE)):
            pass

    def _act_on(self, numbers: bytes) -> bytes:
        """Acts on the signals of a chunk, and returns the chunk."""
        if self._wakeup_before is not None and self._wakeup_before >= 0:  # an event loop set it, and reads it
            with suppress(OSError):
                os.write(self._wakeup_before, numbers.replace(bytes((_END,)), b""))
        for number in numbers:
            if number in self._numbers:
                try:
                    self._act(number)
                except BaseException as error:  # noqa: BLE001  # raised again by `on_signals`, in the caller's thread
                    self.error = self.error or error
        return numbers


def _ignore(number: int, frame: FrameType | None) -> None:
    """Does nothing. The interpreter writes only signals that have a Python handler to the wakeup descriptor."""


def _restore(before: Mapping[int, _Handler]) -> None:
    """Restores handlers; SIGINT last, because from then on it raises KeyboardInterrupt in the main thread."""
    for number in sorted(before, key=lambda n: n == signal.SIGINT):
        signal.signal(number, before[number])


# A child that is forked inside the block shares the pipe, but signals to the child are not meant for the run.
_active: dict[_SignalPipe, Mapping[int, _Handler]] = {}


def _leave_to_parent() -> None:
    for before in reversed(_active.values()):
        signal.set_wakeup_fd(-1)
        _restore(before)
    _active.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
