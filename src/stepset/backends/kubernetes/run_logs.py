"""The logs of a run's pods followed as they come, each in a thread.

Used by whoever follows a run (follow.py) or its logs alone (log_reading.py), and told of the pods by them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stepset.backends.kubernetes.client import Connection
from stepset.backends.kubernetes.log_pods import LogPod, Ranks, log_pod, may_hold
from stepset.backends.kubernetes.pod_log import QUIET, PodLog
from stepset.watch.lines import Batch

_LOOK = 0.1
"""Seconds between two looks at readers that are to finish."""

Manifest = Mapping[str, Any]
Sink = Callable[[str, Batch], None]


class RunLogs:
    """Follows the logs of a run's pods, each in a thread.

    Args:
        connection: the server.
        namespace: where the pods are.
        sink: is given a pod's uid and what it printed, from the readers' threads; a slow one slows them down.
        sources: only pods that may hold lines of these are read; None: all; empty: none.
        ranks: which pods hold which ranks, as the workload says.
        quiet: seconds without a byte after which a log is asked for again.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        sink: Sink,
        *,
        sources: frozenset[str] | None = None,
        ranks: Ranks | None = None,
        quiet: float = QUIET,
    ) -> None:
        self._connection, self._namespace, self._sink = connection, namespace, sink
        self._sources, self._ranks, self._quiet = sources, ranks or {}, quiet
        self._readers: dict[str, PodLog] = {}
        self._ended: set[str] = set()
        self._running_on: dict[str, LogPod] = {}
        self._finishing = self._let = False
        self._problems: list[str] = []
        self._lock = threading.Lock()

    def pod(self, data: Manifest, gone: bool = False, witnessed: bool = True) -> None:
        """A pod was seen; its log is read from when there is one.

        Args:
            data: the object.
            gone: it was deleted.
            witnessed: where it was not, how its container was last seen is not how it was.
        """
        pod = log_pod(data, gone)
        with self._lock:
            self._let_go()
            reader = self._readers.get(pod.uid)
            if reader is not None:
                reader.see(pod)
                if gone and witnessed and pod.alive:
                    self._running_on[pod.uid] = pod
            elif pod.begun and not self._finishing and pod.uid not in self._ended:
                if may_hold(pod, self._sources, self._ranks):
                    self._start(pod)
                else:
                    self._ended.add(pod.uid)

    def reconnect(self) -> None:
        """Asks for every log again: connections may be dead that look alive."""
        with self._lock:
            for reader in self._readers.values():
                reader.reconnect()

    def finish(self, timeout: float) -> bool:
        """Blocks until what was printed up to now is handed on; nothing after that is. Then call `close`.

        Args:
            timeout: seconds.

        Returns:
            Whether all of it was.
        """
        with self._lock:
            self._finishing = True
            for reader in self._readers.values():
                reader.finish()
        until = time.monotonic() + timeout
        while (left := self._alive()) and time.monotonic() < until:
            left[0].join(_LOOK)
            for reader in left:
                reader.hurry()
        with self._lock:
            self._problems += [f"pod {each.name}: its last lines did not come within {timeout:.0f} s" for each in left]
            return not self._problems

    def close(self) -> None:
        """Ends all readers; returns at once."""
        with self._lock:
            self._finishing = True
            for reader in self._readers.values():
                reader.close()

    @property
    def alive(self) -> bool:
        """Whether some reader has not ended."""
        return bool(self._alive())

    @property
    def problems(self) -> tuple[str, ...]:
        """Why some logs could not be read to their end, each in one line."""
        with self._lock:
            return tuple(self._problems)

    def _start(self, pod: LogPod) -> None:
        # A pod that was deleted by force may run on where nobody can end it, as on a lost node. From when another is
        # in its place nobody wants to hear of it.
        for uid, old in self._running_on.items():
            if (old.group, old.index) == (pod.group, pod.index) and uid in self._readers:
                self._readers[uid].close()
        sink = partial(self._sink, pod.uid)
        let = self._let or any(reader.let for reader in self._readers.values())
        reader = PodLog(self._connection, self._namespace, pod, sink, self._quiet, let)
        self._readers[pod.uid] = reader
        reader.start()

    def _alive(self) -> list[PodLog]:
        with self._lock:
            self._let_go()
            return list(self._readers.values())

    def _let_go(self) -> None:
        for uid in [uid for uid, reader in self._readers.items() if not reader.alive]:
            reader = self._readers.pop(uid)
            self._ended.add(uid)
            self._let = self._let or reader.let
            if reader.problem is not None:
                self._problems.append(str(reader.problem))
