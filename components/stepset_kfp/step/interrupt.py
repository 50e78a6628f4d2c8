"""Handles SIGTERM: one request, then the process ends.

When a pipeline is terminated or a pod evicted, argoexec leaves a step about a second (argo-workflows v4.1,
cmd/argoexec/commands/emissary.go: it checks every second whether its child has ended, and KFP's launcher ends at once).
So nothing is waited for: the interpreter itself wakes a thread that does nothing else, whatever the main thread does,
and a connection is kept warm for the one request.
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
"""Seconds for the request; then the step ends, answered or not. The request takes some ten milliseconds
(docs/benchmarks.md). But a step's pod has no claim on its node's CPU, and where that is short a request may not be sent
within 300 ms. To end before argoexec kills the step gains nothing, and lost one run in sixty."""
KEEP_WARM = 20.0
"""Seconds between two small requests; servers close a connection that is silent for longer than a minute or two."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Manifest = Mapping[str, Any]


class Interrupt:
    """Ends a run when the process gets a signal inside `with`. Only in the main thread.

    `act` ends the run of a workload (None: there is none yet) within `budget` seconds, and returns what was done.
    `connection` is kept open for `act` only.
    """

    def __init__(self, connection: Connection, act: Callable[[Manifest | None], str], budget: float = BUDGET) -> None:
        self._connection, self._act, self._budget = connection, act, budget
        self._read, self._write = os.pipe()
        self._over = threading.Event()
        self._before: dict[int, Any] = {}
        self._wakeup = -1
        self.workload: Manifest | None = None
        """The run's workload, as soon as it is known."""

    def __enter__(self) -> Interrupt:
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _heard) for number in _SIGNALS}
        threading.Thread(target=self._listen, name="stepset interrupt", daemon=True).start()
        threading.Thread(target=self._keep_warm, name="stepset keep warm", daemon=True).start()
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
            told = os.read(self._read, 64)
            if not told:
                os.close(self._read)
                return
            if number := next((each for each in told if each in _SIGNALS), 0):
                self._end(number)

    def _end(self, number: int) -> None:
        done = threading.Event()
        said = [f"stepset: told to end (signal {number}); no answer from the server"]

        def act() -> None:
            try:
                said[0] = f"stepset: told to end (signal {number}): {self._act(self.workload)}"
            except StepsetError as error:
                said[0] = f"stepset: told to end (signal {number}): {error}"
            finally:
                done.set()

        threading.Thread(target=act, name="stepset last request", daemon=True).start()
        done.wait(self._budget)
        with suppress(OSError):  # the log is not read any more
            os.write(1, f"{said[0]}\n".encode())
        os._exit(128 + number)

    def _keep_warm(self) -> None:
        while True:
            with suppress(StepsetError):  # the last request reports the same error
                self._connection.get("/version")
            if self._over.wait(KEEP_WARM):
                return


def _heard(number: int, frame: FrameType | None) -> None:
    """Blocks the main thread until the process ends, so that it creates nothing that `act` does not know.

    Python writes a signal to the wake-up descriptor only if the signal has a handler.
    """
    threading.Event().wait()
