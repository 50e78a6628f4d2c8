"""Stops the processes of a pod. Decides which process gets which signal, and when remaining processes are killed."""

from __future__ import annotations

import os
import time
from typing import Any

from stepset.agent.children import Children
from stepset.agent.config import Config
from stepset.agent.errors import IF_POSSIBLE
from stepset.agent.events import RankEvents
from stepset.agent.signals import STOP_BY_MPIRUN, STOPPING, forward_signal, signal

_SAMPLES = 5.0  # seconds that the samples before a stop may take
SHORT_GRACE = 2.0  # seconds between a failure and the stop, and between the end of a launcher's ranks and SIGKILL


class Stopping:
    """Stops the processes of a pod.

    `requested` is the signal that requested the stop, or 0. `started_at` is the time at which the agent began to stop
    the processes, in seconds since the epoch, or 0 if the agent has not begun. `watcher` is the Watcher of the pod, or
    None. It may sample the ranks before they get the signal.
    """

    def __init__(self, config: Config, children: Children, ranks: RankEvents) -> None:
        self.requested = 0
        self.started_at = 0.0
        self.watcher: Any = None
        self._config = config
        self._children = children
        self._ranks = ranks
        self._unsent = 0  # The signal that the ranks get after they were sampled.
        self._held_back = 0  # The signal that the command gets after its ranks have terminated.
        self._signalled: set[int] = set()  # the `rank` processes that have got the signal
        self._file = os.path.join(config.dir, STOPPING)
        self._stop_at = 0.0
        self._kill_at = 0.0

    def request(self, number: int) -> None:
        """Handles a stop signal. The first signal starts the stop, and the second signal kills all processes."""
        if self.requested:
            self._kill_at = time.monotonic()
        else:
            self.requested = number
            self.start(number, self._config.grace)

    def after_failure(self) -> None:
        """Schedules a stop after a failure, unless the launcher restarts ranks."""
        if not self._config.launcher_restarts and not self.started_at and not self._stop_at:
            self._stop_at = time.monotonic() + SHORT_GRACE

    def start(self, number: int, grace: float) -> None:
        """Sends a signal to the ranks or the command, and schedules SIGKILL in `grace` seconds."""
        at = time.monotonic() + grace
        self._kill_at = min(self._kill_at, at) if self._kill_at else at
        if self.started_at:
            return
        self.started_at = time.time()
        self._unsent = number
        if self.watcher:
            self.watcher.begin_stop(self.time_for_samples(grace), requested=bool(self.requested))
        self._send()

    @staticmethod
    def time_for_samples(grace: float) -> float:
        """Returns the number of seconds that the samples before a stop may take within a grace period."""
        return min(_SAMPLES, grace / 2)

    def _send(self) -> None:
        """Sends the signal, unless the ranks are being sampled."""
        number = self._unsent
        if not number or (self.watcher and self.watcher.takes_last_samples):
            return
        self._unsent = 0
        by_mpirun = self._config.launcher and self._config.mpi
        if by_mpirun or not self._ranks.running:
            self._children.forward(STOP_BY_MPIRUN if by_mpirun else number)
        else:
            # A launcher would not let the ranks save for the whole grace period: torchrun kills its ranks after 30 s,
            # and sshd and orted at once. Therefore only the ranks get the signal.
            with IF_POSSIBLE, open(self._file, "wb"):
                pass
            self._held_back = number
            self._signal_ranks(number)

    def _signal_ranks(self, number: int) -> None:
        """Sends a signal to each rank that has not got it. The launcher may start ranks after the stop has begun."""
        for wrapper in self._ranks.running.values():
            if wrapper not in self._signalled:
                self._signalled.add(wrapper)
                forward_signal(wrapper, number)

    def deadlines(self) -> list[float]:
        """Returns the times of the monotonic clock at which `act_on_deadlines` must be called."""
        return [at for at in (self._kill_at, self._stop_at) if at]

    def kill_is_due(self) -> bool:
        """Returns whether the time for SIGKILL has passed."""
        return bool(self._kill_at) and time.monotonic() >= self._kill_at

    def act_on_deadlines(self, at: float) -> None:
        """Sends the signals that are due at time `at` of the monotonic clock."""
        if self._stop_at and at >= self._stop_at:
            self._stop_at = 0.0
            self.start(signal.SIGTERM, self._config.grace)
        self._send()
        if self._held_back:
            self._signal_ranks(self._held_back)
        if self._held_back and not self._ranks.running:
            number, self._held_back = self._held_back, 0
            self._release()
            self._children.forward(number)
        if self._kill_at and self._all_ranks_ended():
            # torchrun waits 300 s for ranks of other nodes, and ignores signals during this time (2.15, tested).
            self._kill_at = min(self._kill_at, at + SHORT_GRACE)
        if self._kill_at and at >= self._kill_at:
            self._kill_at = 0.0
            self._held_back = 0
            self._children.kill_all()

    def _release(self) -> None:
        """Lets the `rank` processes exit."""
        with IF_POSSIBLE:
            os.unlink(self._file)

    def _all_ranks_ended(self) -> bool:
        """Returns whether all ranks that a launcher started here have terminated. If so, none needs more time."""
        config = self._config
        return bool(config.launcher and not config.mpi and self._ranks.seen and not self._ranks.running)
