"""The cluster's events about a run: keeps the latest, and formats the relevant ones as one line each.

Some problems are reported only by events: pods rejected by a quota or a webhook, volumes that cannot be mounted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from stepset.unstructured import Fields, number, one_line, part, text, time_of

SHOWN = 6
"""The maximum number of events in a Failure."""

_KEPT = 400
# Reasons of events that explain a failure although they are not warnings.
_RELEVANT = frozenset({"Preempted", "TaintManagerEviction", "NodeNotReady", "Evicted"})
# Reasons of events that accompany every failure, or only report another attempt.
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
    """An event about an object. Times are seconds since the epoch."""

    uid: str  # of the event
    kind: str  # of the object that it is about
    name: str  # of that object
    about: str  # uid of that object
    reason: str
    message: str
    warning: bool  # type Warning, not Normal
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
        """The time of the last event, in seconds since the epoch; 0 without events."""
        return max((each.last for each in self._by_uid.values()), default=0.0)

    def of(self, reasons: Iterable[str]) -> list[Event]:
        """The events with one of these reasons, the latest last."""
        wanted = frozenset(reasons)
        return sorted((each for each in self._by_uid.values() if each.reason in wanted), key=lambda each: each.last)

    def relevant_lines(self, since: float, until: float, created: float = 0.0) -> tuple[str, ...]:
        """The latest relevant events between two times (seconds since the epoch), one line each, the newest last.

        Equal events share a line, with their count. Failed creations before `created`, the time when the last pod was
        created, are omitted: a retry has succeeded.
        """
        groups: dict[tuple[str, str], list[Event]] = {}
        for each in self._by_uid.values():
            noise = each.reason in _NOISE or "FailurePolicy" in each.reason
            matters = (each.warning or each.reason in _RELEVANT) and not noise
            outdated = each.reason in REFUSED and each.last < created + 1.0
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
