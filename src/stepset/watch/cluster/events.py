"""Keeps the latest events of the cluster about a run, and formats each relevant event as one line.

Some problems are reported only by events. For example, a quota or a webhook rejects a pod, or a volume cannot be
mounted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from stepset.unstructured import Fields, number, one_line, part, text, time_of

SHOWN = 6
"""The maximum number of events in a `Failure`."""

_KEPT = 400
# The reasons of events that explain a failure although the events are not warnings.
_RELEVANT = frozenset({"Preempted", "TaintManagerEviction", "NodeNotReady", "Evicted"})
PULL_SECRET = ("FailedToRetrieveImagePullSecret",)
"""The reason of events about an imagePullSecret that does not exist."""
# The reasons of events that follow every failure, or that only report another attempt.
_NOISE = frozenset(
    {
        "BackOff",
        "BackoffLimitExceeded",
        "FailedJobs",
        *PULL_SECRET,
        "PodGroupPending",  # of Volcano, at each start of a gang
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
"""The reasons of events about objects that a controller failed to create."""
MOUNT = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
"""The reasons of events about volumes that a pod waits for."""
SANDBOX = ("FailedCreatePodSandBox", "FailedCreatePodContainer")
"""The reasons of events about the network and the containers that a pod waits for."""
# An API server's error as Go prints its structure, whole or cut off (volcano v1.10 pkg/controllers/job/
# job_controller_actions.go). The group is the message, without the structure around it.
_DUMP = re.compile(
    r'&errors\.StatusError\{.{0,400}?Message:"((?:[^"\\]|\\.)*+)'
    r'(?:", Reason:"\w*+", Details:[^{}]{0,100}\}{0,2})?'
)
_DUMP_LIMIT = 4096  # characters of a message in which structures are searched
_NAMES = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27,}\b|\b[0-9a-f]{40,64}\b")


class Event(Struct, frozen=True):
    """An event about an object. Times are seconds since the epoch."""

    uid: str  # the uid of the event
    kind: str  # the kind of the object that the event is about
    name: str  # the name of that object
    about: str  # the uid of that object
    reason: str
    message: str
    warning: bool  # whether the type is Warning instead of Normal
    count: int  # how often the event happened
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
        message=one_line(_without_dumps(text(data, "message") or text(data, "note")), 500),
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
        """Adds an event. Returns whether the event is new or has changed."""
        if self._by_uid.get(event.uid) == event:
            return False
        self._by_uid[event.uid] = event
        if len(self._by_uid) > _KEPT:
            for each in sorted(self._by_uid.values(), key=lambda each: each.last)[: _KEPT // 4]:
                del self._by_uid[each.uid]
        return True

    @property
    def latest(self) -> float:
        """The time of the latest event, in seconds since the epoch, or 0 if there are no events."""
        return max((each.last for each in self._by_uid.values()), default=0.0)

    def of(self, reasons: Iterable[str]) -> list[Event]:
        """Returns the events with one of these reasons. The latest event is last."""
        wanted = frozenset(reasons)
        return sorted((each for each in self._by_uid.values() if each.reason in wanted), key=lambda each: each.last)

    def about(self, kind: str) -> list[Event]:
        """Returns the events about objects of this kind. The latest event is last."""
        return sorted((each for each in self._by_uid.values() if each.kind == kind), key=lambda each: each.last)

    def relevant_lines(
        self, since: float, until: float, created: float, started: Mapping[str, float]
    ) -> tuple[str, ...]:
        """Returns the latest relevant events between two times, as lines of text. The newest event is last.

        Events with the same reason and the same message share one line. The line states how often these events
        occurred. Failed creations before `created` are omitted, because a later creation has succeeded. Failed
        mounts of a pod before its start are omitted for the same reason.

        Args:
            since, until: the two times, in seconds since the epoch.
            created: the time at which the last pod was created, or 0 if there are no pods.
            started: a mapping from the uid of each pod whose command has started to the time of the start.
        """
        groups: dict[tuple[str, str], list[Event]] = {}
        for each in self._by_uid.values():
            waits = each.reason == "Unschedulable" and each.kind == "PodGroup"  # of Volcano, at each start of a gang
            noise = each.reason in _NOISE or "FailurePolicy" in each.reason or waits
            matters = (each.warning or each.reason in _RELEVANT) and not noise
            done_at = -math.inf
            if each.reason in REFUSED and created:
                done_at = created
            elif each.reason in (*MOUNT, *SANDBOX):
                done_at = started.get(each.about, -math.inf)
            outdated = each.last < done_at + 1.0  # times are whole seconds
            if matters and not outdated and each.last >= since and each.first <= until:
                groups.setdefault((each.reason, _NAMES.sub("", each.message)), []).append(each)
        latest = sorted(groups.values(), key=lambda group: max(each.last for each in group))[-SHOWN:]
        return tuple(_line(group) for group in latest)


def _without_dumps(message: str) -> str:
    """Replaces each error of the API server that Go has printed as a structure by its message."""
    if "&errors.StatusError{" not in message:
        return message
    return _DUMP.sub(lambda found: found[1].replace('\\"', '"'), message[:_DUMP_LIMIT])


def _line(group: list[Event]) -> str:
    newest = max(group, key=lambda each: each.last)
    count = sum(each.count for each in group)
    names = sorted({each.name for each in group})
    who = f"{newest.kind.lower()} {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    times = f" ({count} times)" if count > 1 else ""
    return f"{newest.reason}{times}, {who}: {newest.message}"
