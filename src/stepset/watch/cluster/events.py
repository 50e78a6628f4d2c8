"""The cluster's events about a run: few kept, told in one line each.

Called by RunObjects. Some things are said by events alone: pods that a quota or a webhook refuses, volumes that cannot
be mounted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from stepset.watch.cluster.fields import Fields, number, one_line, part, text, time_of

SHOWN = 6
"""Events that a Failure tells."""

_KEPT = 400
# What says why, although it is no warning.
_TELLING = frozenset({"Preempted", "TaintManagerEviction", "NodeNotReady", "Evicted"})
# What every failure brings along, and what only says that something is tried again.
_NOISE = frozenset(
    {
        "BackOff",
        "BackoffLimitExceeded",
        "FailedJobs",
        "FailedToRetrieveImagePullSecret",
        "ReachedMaxRestarts",
        "Restarting",
        "Unhealthy",
    }
)
REFUSED = (
    "FailedCreate",
    "JobCreationFailed",
    "TrainJobResourcesCreationFailed",
    "HeadlessServiceCreationFailed",
    "PVCCreationFailed",
)
"""Somebody would not have an object that a controller wanted to make."""
_NAMES = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27,}\b|\b[0-9a-f]{40,64}\b")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an object. Times are seconds since the epoch.

    Args:
        uid: of the event.
        kind, name, about: the object it happened to; `about` is its uid.
        reason, message: what happened.
        warning: it is no routine.
        count: how often.
        first, last: when.
    """

    uid: str
    kind: str
    name: str
    about: str
    reason: str
    message: str
    warning: bool
    count: int
    first: float
    last: float


def read_event(data: Fields) -> Event:
    """Reads an event of core/v1 or events.k8s.io/v1."""
    meta, series = part(data, "metadata"), part(data, "series")
    about = part(data, "involvedObject") or part(data, "regarding")
    first = time_of(data, "firstTimestamp") or time_of(data, "eventTime") or time_of(meta, "creationTimestamp") or 0.0
    last = time_of(series, "lastObservedTime") or time_of(data, "lastTimestamp") or first
    return Event(
        uid=text(meta, "uid") or text(meta, "name"),
        kind=text(about, "kind"),
        name=text(about, "name"),
        about=text(about, "uid"),
        reason=text(data, "reason"),
        message=one_line(text(data, "message") or text(data, "note"), 500),
        warning=text(data, "type") == "Warning",
        count=number(series, "count") or number(data, "count") or 1,
        first=first,
        last=last,
    )


class Events:
    """The latest events about a run's objects."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Event] = {}

    def add(self, event: Event) -> bool:
        """Takes one; whether it says anything new."""
        if self._by_uid.get(event.uid) == event:
            return False
        self._by_uid[event.uid] = event
        if len(self._by_uid) > _KEPT:
            oldest = sorted(self._by_uid.values(), key=lambda each: each.last)[: _KEPT // 4]
            for each in oldest:
                del self._by_uid[each.uid]
        return True

    @property
    def latest(self) -> float:
        """When the last of them happened, in seconds since the epoch."""
        return max((each.last for each in self._by_uid.values()), default=0.0)

    def of(self, reasons: Iterable[str]) -> list[Event]:
        """Those with one of these reasons, the latest last."""
        wanted = frozenset(reasons)
        found = [each for each in self._by_uid.values() if each.reason in wanted]
        return sorted(found, key=lambda each: each.last)

    def told(self, since: float, until: float, made: float = 0.0) -> tuple[str, ...]:
        """The latest that matter, one line each, the same told once, the newest last.

        Args:
            since, until: when they happened, in seconds since the epoch.
            made: when the last pod was made: whatever was refused before was made after all.
        """
        groups: dict[tuple[str, str], list[Event]] = {}
        for each in self._by_uid.values():
            noise = each.reason in _NOISE or "FailurePolicy" in each.reason
            matters = (each.warning or each.reason in _TELLING) and not noise
            outdated = each.reason in REFUSED and each.last < made + 1.0
            if matters and not outdated and each.last >= since and each.first <= until:
                groups.setdefault((each.reason, _NAMES.sub("", each.message)), []).append(each)
        latest = sorted(groups.values(), key=lambda group: max(each.last for each in group))[-SHOWN:]
        return tuple(_line(group) for group in latest)


def _line(group: list[Event]) -> str:
    newest = max(group, key=lambda each: each.last)
    count = sum(each.count for each in group)
    names = sorted({each.name for each in group})
    who = f"{newest.kind.lower()} {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    times = f" ({count} times)" if count > 1 else ""
    return f"{newest.reason}{times}, {who}: {newest.message}"
