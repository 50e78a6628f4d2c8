"""Handles SIGTERM in a step: sends one request, then ends the process.

When a pipeline is terminated or a pod evicted, a step has about a second (argo-workflows v4.1,
cmd/argoexec/commands/emissary.go: argoexec checks every second whether its child has ended, and KFP's launcher ends at
once). Therefore the interpreter wakes a dedicated thread, independently of the main thread, and a connection is kept
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

from stepset.backends.kubernetes.api.connection import Connection
from stepset.errors import StepsetError

BUDGET = 0.9
"""Seconds for the request; then the step ends even without a response. The request usually takes tens of milliseconds
(docs/benchmarks.md), but a step's pod requests no CPU, and on a busy node more than 300 ms may pass before it is sent.
A shorter budget gains nothing, because argoexec kills the step anyway; with 300 ms, 1 run in 60 was not suspended."""
KEEP_ALIVE_SECONDS = 20.0
"""Seconds between two small requests that keep the connection open: servers close it if it is idle for a minute."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Manifest = Mapping[str, Any]


class Interrupt:
    """Ends a run when the process receives a signal inside `with`; for the main thread only.

    `act` gets the run's workload (None if it is not known yet), ends the run within `budget` seconds, and returns a
    message. Only `act` uses `connection`, which is kept open.
    """

    def __init__(self, connection: Connection, act: Callable[[Manifest | None], str], budget: float = BUDGET) -> None:
        self._connection, self._act, self._budget = connection, act, budget
        self._read, self._write = os.pipe()
        self._over = threading.Event()
        self._before: dict[int, Any] = {}
        self._wakeup = -1
        self.workload: Manifest | None = None
        """The run's workload, once it is known."""

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
        os.close(self._write)  # ends the listener

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
        with suppress(OSError):  # the reader of the log has ended
            os.write(1, f"{message[0]}\n".encode())
        os._exit(128 + number)

    def _keep_alive(self) -> None:
        while True:
            with suppress(StepsetError):  # the last request reports the same error
                self._connection.get("/version")
            if self._over.wait(KEEP_ALIVE_SECONDS):
                return


def _block_main_thread(number: int, frame: FrameType | None) -> None:
    """Blocks the main thread until the process ends, so that it creates no objects that `act` does not end.

    Python writes a signal to the wake-up descriptor only if the signal has a handler.
    """
    threading.Event().wait()
