"""The cluster's events about a run: a few are kept, and reported in one line each.

Some problems are reported by events only: pods that a quota or a webhook refuses, volumes that cannot be mounted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from stepset.watch.cluster.unstructured import Fields, number, one_line, part, text, time_of

SHOWN = 6
"""Events that a Failure shows."""

_KEPT = 400
# Events that explain a failure although they are not warnings.
_TELLING = frozenset({"Preempted", "TaintManagerEviction", "NodeNotReady", "Evicted"})
# Events that accompany every failure, or only report another attempt.
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
"""Reasons of events about objects that a controller failed to create."""
_NAMES = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27,}\b|\b[0-9a-f]{40,64}\b")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an object. Times are seconds since the epoch."""

    uid: str  # of the event
    kind: str  # of the object it happened to, as are name and about
    name: str
    about: str  # the object's uid
    reason: str
    message: str
    warning: bool  # not a routine event
    count: int  # how often it happened
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
        """Adds an event; returns whether it is new or changed."""
        if self._by_uid.get(event.uid) == event:
            return False
        self._by_uid[event.uid] = event
        if len(self._by_uid) > _KEPT:
            for each in sorted(self._by_uid.values(), key=lambda each: each.last)[: _KEPT // 4]:
                del self._by_uid[each.uid]
        return True

    @property
    def latest(self) -> float:
        """When the last event happened, in seconds since the epoch; 0 without events."""
        return max((each.last for each in self._by_uid.values()), default=0.0)

    def of(self, reasons: Iterable[str]) -> list[Event]:
        """The events with one of these reasons, the latest last."""
        wanted = frozenset(reasons)
        return sorted((each for each in self._by_uid.values() if each.reason in wanted), key=lambda each: each.last)

    def told(self, since: float, until: float, made: float = 0.0) -> tuple[str, ...]:
        """The latest relevant events between two times (seconds since the epoch), one line each, the newest last.

        Equal events are counted in one line. Refusals before `made`, when the last pod was created, were overcome.
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
