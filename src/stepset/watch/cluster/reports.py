"""What the agents' lines said: which ranks started and ended, failures, last lines, progress, the result.

Filled by whoever follows a run, from the pods' logs; a status knows more with it, and is right without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.watch.cluster.objects import RunObjects
from stepset.watch.diagnose import TAIL
from stepset.watch.lines import Batch, merge_progress
from stepset.watch.state import Progress

_LINE = 1000
"""Bytes of a line that are kept."""
_ROOM = 64
"""Pods of which nothing is forgotten, because it is not worth looking for what may be."""


@dataclass(slots=True)
class RankReport:
    """One rank, as its agent reported it.

    Args:
        starts: how often it was started.
        ended: the event of its end, with `exit_code` or `signal`, and `at`; None while it runs.
        failed: the event that says why it failed.
    """

    starts: int = 0
    ended: Mapping[str, Any] | None = None
    failed: Mapping[str, Any] | None = None


@dataclass(slots=True)
class PodReport:
    """One pod's lines.

    Args:
        ranks: rank -> what was said of it.
        failed: a failure that is no rank's.
        missing: names the agent waits for.
        result: rank 0's, in a tuple because it may be None.
        tails: source -> its last lines, as bytes.
    """

    ranks: dict[int, RankReport] = field(default_factory=dict)
    failed: Mapping[str, Any] | None = None
    missing: tuple[str, ...] = ()
    result: tuple[Any, ...] = ()
    tails: dict[str, deque[bytes]] = field(default_factory=dict)

    def tail(self, source: str) -> tuple[str, ...]:
        """The last lines of a source."""
        return tuple(line.decode("utf-8", "replace") for line in self.tails.get(source, ()))

    def last_line(self, source: str) -> str:
        """The last line of a source."""
        lines = self.tails.get(source)
        return lines[-1].decode("utf-8", "replace") if lines else ""


class Reports:
    """What the agents of one run said. A pod is told by its uid, so that attempts are never mixed up."""

    def __init__(self) -> None:
        self._pods: dict[str, PodReport] = {}
        self._room = _ROOM
        self.progress: Progress | None = None

    def of(self, pod: str) -> PodReport | None:
        """What a pod said, if anything."""
        return self._pods.get(pod)

    def see(self, pod: str, batch: Batch) -> None:
        """Takes what one chunk of a pod's log held.

        Args:
            pod: the pod's uid.
            batch: from watch/lines.py.
        """
        report = self._pods.get(pod)
        if report is None:
            report = self._pods[pod] = PodReport()
        tails = report.tails
        for head, text in batch.lines:
            tail = tails.get(head.source)
            if tail is None:
                tail = tails[head.source] = deque(maxlen=TAIL)
            tail.append(text)
        if batch.lines:
            # Lines may be long; only those that stay are cut.
            for tail in tails.values():
                for position, line in enumerate(tail):
                    if len(line) > _LINE:
                        tail[position] = line[:_LINE]
        for said in batch.progress:
            self.progress = merge_progress(self.progress, said)
        for event in batch.events:
            _take(report, event)

    def tidy(self, objects: RunObjects) -> None:
        """Forgets pods that no status speaks of any more, or a run of many restarts fills the memory.

        For whoever follows a run, whenever its objects have changed; it costs nothing most of the time.

        Args:
            objects: the run's; a pod is known there before its log is read.
        """
        if len(self._pods) < self._room:
            return
        kept = objects.known
        for pod in [pod for pod in self._pods if pod not in kept]:
            del self._pods[pod]
        self._room = max(_ROOM, 2 * len(self._pods))


def _take(report: PodReport, event: Mapping[str, Any]) -> None:
    name, rank = event.get("event"), event.get("rank")
    if name == "waiting":
        missing = event.get("missing")
        report.missing = tuple(str(each) for each in missing) if isinstance(missing, list) else ()
        return
    report.missing = ()
    if name == "result":
        report.result = (event.get("result"),)
    elif isinstance(rank, int) and not isinstance(rank, bool):
        known = report.ranks.setdefault(rank, RankReport())
        if name == "started":
            # Its launcher has started it again: what was before is no failure of the pod.
            known.starts += 1
            known.ended = known.failed = None
        elif name == "exited":
            known.ended = event
        elif name == "failed":
            known.failed = event
    elif name == "failed":
        report.failed = event
