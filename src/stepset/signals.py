"""Handles signals that stop a run. The interpreter writes signals to a pipe, and a thread reads the pipe.

Python calls a signal handler in the main thread between any two bytecodes. The handler can interrupt `Event.set` or
another handler. If the handler acquires a lock that the interrupted code holds, the handler waits forever.

While the main thread waits for a lock, Python sometimes does not call the handler at all. The kernel can deliver two
signals in quick succession to another thread. The main thread then continues to wait. In a test with CPython 3.11 and
Linux 6.18, this happened with one pair of signals in five.

Therefore the signal handler in this module does nothing. The interpreter writes the number of the signal to a pipe. The
number is written in the thread that receives the signal (signal.set_wakeup_fd; https://cr.yp.to/docs/selfpipe.html).
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
"""The number of seconds between two attempts to stop the thread while the pipe is full."""


@contextmanager
def on_signals(numbers: Iterable[int], act: Callable[[int], None]) -> Iterator[None]:
    """Calls `act` for each signal in `numbers` that arrives inside the `with` block.

    The argument of `act` is the number of the signal. A separate thread calls `act` once per signal, in the order of
    arrival. `act` may acquire locks. At the exit of the block, the thread is stopped and the former handlers are
    restored. If a signal was ignored before the block (nohup), the signal is still ignored. Outside the main thread,
    Python cannot set handlers, so the function does nothing.

    Raises:
        InfrastructureError: the system limits of threads or open files are reached.
        BaseException: the first error of `act`, raised at the exit of the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # getsignal returns None for handlers that C code installed. These handlers are not replaced, because Python could
    # not restore them.
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
        # The thread is stopped before the handlers are restored. Therefore no signal can interrupt `pipe.end`.
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
    """Calls `stop` in another thread at each Ctrl-C inside the `with` block.

    KeyboardInterrupt is raised only at the exit of the block. The function does nothing outside the main thread, or if
    the program handles SIGINT itself.
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
    """Collects requests to stop a run. A request can come from any thread, even before the run exists."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        self._count = 0

    def attach(self, cancel: Callable[[], None]) -> None:
        """Calls `cancel` once for each earlier request, and once for each later request."""
        with self._lock:
            self._cancel, earlier = cancel, self._count
        for _ in range(earlier):
            cancel()

    def exist(self) -> bool:
        """Returns whether there has been a request."""
        return self._count > 0

    def add(self) -> int:
        """Adds a request, and returns the number of requests."""
        with self._lock:
            self._count += 1
            count, cancel = self._count, self._cancel
        if cancel is not None:
            cancel()
        return count


class _SignalPipe:
    """The pipe to which the interpreter writes signals, and the thread that reads the pipe.

    Args:
        numbers: the signals to handle. The interpreter also writes other signals that have a Python handler.
        act: the function that is called with the number of each signal.

    Attributes:
        error: the first error of `act`, or None.
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
        """Stops the thread after it has handled every signal that arrived before this call."""
        while self._thread.is_alive():
            with suppress(BlockingIOError):  # the pipe is full of signals, and the thread reads them
                os.write(self._write_end, bytes((_END,)))
            self._thread.join(_END_INTERVAL)

    def close(self) -> None:
        """Handles the signals that the thread has not read, and closes the pipe."""
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
        """Handles the signals of a chunk, and returns the chunk."""
        # An event loop has set this file descriptor in order to receive signals.
        if self._wakeup_before is not None and self._wakeup_before >= 0:
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
    """Does nothing. A Python handler must exist, or the interpreter does not write the signal to the pipe."""


def _restore(before: Mapping[int, _Handler]) -> None:
    """Restores handlers. SIGINT's handler is restored last, because Ctrl-C can interrupt this function afterwards."""
    for number in sorted(before, key=lambda n: n == signal.SIGINT):
        signal.signal(number, before[number])


# The pipes that are in use, and the former handlers of their signals. A child process that is forked inside the `with`
# block shares the pipe. Signals to the child process are not meant for the run. Therefore the child process restores
# the handlers.
_active: dict[_SignalPipe, Mapping[int, _Handler]] = {}


def _leave_to_parent() -> None:
    for before in reversed(_active.values()):
        signal.set_wakeup_fd(-1)
        _restore(before)
    _active.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
