"""Keeps when ranks have joined their last collectives, as agents report it. No I/O, no clock.

A rank can forge events of its own pod. Therefore every type and size is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stepset.hang import SlowRanks
from stepset.run_status import RankStatus, RunStatus
from stepset.unstructured import rows, text
from stepset.watch.agent_events import read_events
from stepset.watch.hangs.slow import Join, RankJoins, slow_ranks
from stepset.watch.hangs.stalled import JOINS
from stepset.watch.lines import Batch, OpenLine

_RANKS_OF_POD, _GROUPS, _COLLECTIVES = 256, 4, 128
"""The maximum numbers of ranks of a pod, of groups of a rank, and of collectives of a group in one event."""
_NAME = 100
_LATEST = 2**60
"""The limit of times, in microseconds since the epoch."""


@dataclass(frozen=True, eq=False)
class _Known:
    """The last two events of a rank. The pods do not report at the same moment, so that one may not be enough."""

    gpu: str = ""
    events: tuple[Mapping[str, Mapping[int, Join]], ...] = ()

    @cached_property
    def merged(self) -> Mapping[str, Mapping[int, Join]]:
        groups = dict.fromkeys(group for event in self.events for group in event)
        return {name: {n: join for each in self.events for n, join in each.get(name, {}).items()} for name in groups}


class JoinTimes:
    """When the ranks of one run have joined their last collectives, by the pod that has reported it."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[int, _Known]] = {}
        self._found: tuple[object, SlowRanks | None] = (None, None)  # the last result, and what it depends on

    def see(self, pod: str, batch: Batch) -> bool:
        """Processes a chunk of a pod's output. Returns whether it contains new times."""
        new = False
        items = [item for _, item in batch.between if not isinstance(item, OpenLine)]
        for event in read_events(items):
            rank = event.get("rank")
            if rank is None:
                continue
            if event["event"] == "started":  # the sequence numbers begin again
                self._pods.get(pod, {}).pop(rank, None)
            elif event["event"] == JOINS:
                known = self._pods.setdefault(pod, {})
                if rank in known or len(known) < _RANKS_OF_POD:
                    data, earlier = event[JOINS], known.get(rank, _Known()).events[-1:]
                    known[rank], new = _Known(text(data, "gpu")[:_NAME], (*earlier, dict(_groups(data)))), True
        return new

    def drop(self, pod: str) -> None:
        """Drops the times of a pod."""
        self._pods.pop(pod, None)

    def slow(self, ranks: Sequence[RankStatus], pods: Mapping[str, str], *, one_clock: bool) -> SlowRanks | None:
        """Returns the ranks that the other ranks wait for. Returns None if there are none, or if a rank is unknown.

        Args:
            ranks: the rows of the current attempt.
            pods: the key of each pod of the current attempt (`see`), by the name of the pod.
            one_clock: whether all nodes are this machine.
        """
        if not self._pods:
            return None
        found, key = {}, []
        for row in ranks:
            if row.rank is not None:
                known = self._pods.get(pods.get(row.pod, ""), {}).get(row.rank)
                if known is None:
                    return None
                clock = "" if one_clock else row.node or row.pod
                found[row.rank] = RankJoins(row.node or row.pod, clock, known.gpu, known.merged)
                key.append((row.rank, row.node, row.pod, known))
        if key != self._found[0]:
            self._found = key, slow_ranks(found)
        return self._found[1]


def with_slow(status: RunStatus, joins: JoinTimes, pods: Mapping[str, str]) -> RunStatus:
    """Returns the status with the ranks that the other ranks wait for. See `JoinTimes.slow`."""
    return status.with_(slow=joins.slow(status.ranks, pods, one_clock=status.backend == "local"))


def _groups(event: Mapping[str, Any]) -> Iterator[tuple[str, dict[int, Join]]]:
    for data in rows(event, "groups")[:_GROUPS]:
        numbers, times = _sums(data.get("seq")), _sums(data.get("at"))
        ends = data.get("end")
        after = [_whole(each) for each in ends[:_COLLECTIVES]] if isinstance(ends, list) else [0] * len(numbers)
        if len(numbers) == len(times) == len(after):
            joined = {
                number: Join(at / 1e6, (at + end) / 1e6 if end else None)
                for number, at, end in zip(numbers, times, after, strict=True)
            }
            yield f"{text(data, 'backend')[:_NAME]}:{text(data, 'group')[:_NAME]}", joined


def _sums(differences: Any) -> list[int]:
    """Returns the values whose differences an event contains, or an empty list if one is invalid."""
    found, value = [], 0
    for each in differences[:_COLLECTIVES] if isinstance(differences, list) else ():
        if not isinstance(each, int) or isinstance(each, bool) or not 0 <= (value := value + each) < _LATEST:
            return []
        found.append(value)
    return found


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LATEST else 0
