"""Handles SIGTERM in a step. The step sends one request that ends the run, and exits.

If a pipeline is terminated or a pod is evicted, a step has about one second before the step is killed. KFP's launcher
exits immediately after SIGTERM. argoexec checks every second whether the launcher has exited. If the launcher has
exited, argoexec kills the step (argo-workflows v4.1, cmd/argoexec/commands/emissary.go).

Therefore the signal wakes a dedicated thread, even if the main thread is busy. A connection to the API server is kept
open for the request.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from stepset.backends.kubernetes.api.portal import Connection
from stepset.errors import StepsetError

BUDGET = 0.9
"""The number of seconds for the request. After this time, the step exits even if no response has arrived.

The request usually takes tens of milliseconds (docs/benchmarks.md). However, the pod of a step requests no CPU. On a
busy node, more than 300 ms may pass before the request is sent. A shorter budget has no advantage, because argoexec
kills the step anyway."""
KEEP_ALIVE_SECONDS = 20.0
"""The number of seconds between two small requests that keep the connection open.

Servers close a connection that is idle for a minute."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Manifest = Mapping[str, Any]


class Interrupt:
    """A context manager that ends a run if the process receives SIGTERM or SIGINT inside the `with` block.

    The context manager can be used only in the main thread. When the process has received a signal, the process calls
    `act` and then exits.

    Args:
        connection: a connection that is kept open. Only `act` may use the connection.
        act: a function that suspends or deletes the run and returns a message for the log. Its argument is the workload
            of the run, or None if the run does not exist yet.
        budget: the maximum number of seconds to wait for `act`.
    """

    def __init__(self, connection: Connection, act: Callable[[Manifest | None], str], budget: float = BUDGET) -> None:
        self._connection, self._act, self._budget = connection, act, budget
        self._read, self._write = os.pipe()
        self._over = threading.Event()
        self._before: dict[int, Any] = {}
        self._wakeup = -1
        self.workload: Manifest | None = None
        """The workload of the run. None until the step has found or created the run."""

    def __enter__(self) -> Interrupt:
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _block_main_thread) for number in _SIGNALS}
        threading.Thread(target=self._listen, name="stepset interrupt", daemon=True).start()
        threading.Thread(target=self._keep_alive, name="stepset keep-alive", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._write)  # the thread of `_listen` then returns

    def _listen(self) -> None:
        while True:
            select.select([self._read], [], [])
            received = os.read(self._read, 64)
            if not received:
                os.close(self._read)
                return
            if number := next((each for each in received if each in _SIGNALS), 0):
                self._end(number)

    def _end(self, number: int) -> None:
        done = threading.Event()
        message = [f"stepset: received signal {number}; no response from the API server"]

        def act() -> None:
            try:
                message[0] = f"stepset: received signal {number}; {self._act(self.workload)}"
            except StepsetError as error:
                message[0] = f"stepset: received signal {number}; {error}"
            finally:
                done.set()

        threading.Thread(target=act, name="stepset last request", daemon=True).start()
        done.wait(self._budget)
        with suppress(OSError):  # the process that reads the log has exited
            os.write(1, f"{message[0]}\n".encode())
        os._exit(128 + number)

    def _keep_alive(self) -> None:
        while True:
            with suppress(StepsetError):  # the last request reports the same error
                self._connection.get("/version")
            if self._over.wait(KEEP_ALIVE_SECONDS):
                return


def _block_main_thread(number: int, frame: FrameType | None) -> None:
    """Blocks the main thread until the process exits.

    Without this function, the main thread could create objects that `act` does not delete. The function must be a
    signal handler, because Python writes a signal to the wake-up descriptor only if the signal has a handler.
    """
    threading.Event().wait()
