"""Reads the events that agents print, and checks the types of the events' values. Contains only pure functions.

A rank can write to the pipe of its agent. Therefore the rank can forge events of its own pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepset.run_status import FailureKind
from stepset.unstructured import LATEST, integer, moment
from stepset.watch.bounded_json import finite
from stepset.watch.diagnose import Observation

_NUMBERS = {"exit_code": range(256), "signal": range(256), "pid": range(1, 2**31), "alone": range(2)}
_TEXTS = ("error", "kind", "source", "digest", "text")
_UNCHECKED = ("stalled", "joins")
_TEXT = 4096
"""The maximum number of characters of a string in an event. Each of the `missing` peers is such a string."""
_MOST_RANKS = 2**31
"""The limit for ranks if the number of ranks is unknown."""
_KINDS = {kind.value: kind for kind in FailureKind}
_PEERS = 1000
"""The maximum number of `missing` peers that are kept."""


def read_events(events: Iterable[Mapping[str, Any]], ranks: int = _MOST_RANKS) -> Iterator[dict[str, Any]]:
    """Yields the events. An event is left out if it has an impossible rank, or a value of an unexpected type.

    An event `stalled` has the field `stalled`, the unchecked event, which `hangs.evidence.read_evidence` checks. In the
    same way, an event `joins` has the field `joins`, which `hangs.joins` checks.

    Args:
        ranks: the number of ranks, if this number is known. A rank that is not below this number is impossible.
    """
    for event in events:
        read: dict[str, Any] = {"event": event["event"]}
        for name in ("rank", *_NUMBERS, "at", *_TEXTS, "missing", "result"):
            if (value := event.get(name)) is not None:
                read[name] = _checked(name, value, ranks)
        if event["event"] in _UNCHECKED:
            read[event["event"]] = event
        if None not in (read[name] for name in read if name != "result"):
            yield read


def checkpoint_of(event: Mapping[str, Any]) -> tuple[str, float] | None:
    """Returns the checkpoint that an event `resuming` contains, and the time at which the checkpoint was written.

    Returns None for other events.

    Args:
        event: an event that `read_events` yielded.
    """
    name, at = event.get("text", ""), event.get("at", -1.0)
    return (name, at) if event["event"] == "resuming" and name and 0 <= at < LATEST else None


def observation_of(event: Mapping[str, Any], source: str, at: float = 0.0, **known: Any) -> Observation:
    """Returns an observation for an event about an exit or a failure.

    Args:
        event: an event that `read_events` yielded, or the unchecked verdict in a termination message.
        source: the process that the event is about.
        at: the time of the observation if the event contains no time.
        known: further fields of the observation.
    """
    kind = event.get("kind")
    return Observation(
        source,
        moment(event, "at") or at,
        exit_code=integer(event, "exit_code"),
        signal=integer(event, "signal"),
        error=str(event.get("error") or ""),
        searched="error" in event,
        kind=_KINDS.get(kind) if isinstance(kind, str) else None,
        **known,
    )


def _checked(name: str, value: Any, ranks: int) -> Any:
    """Returns the checked value of the field `name` of an event. Returns None if the value is invalid.

    `value` must not be None.
    """
    if name == "rank" or name in _NUMBERS:
        valid = isinstance(value, int) and not isinstance(value, bool)
        return value if valid and value in _NUMBERS.get(name, range(ranks)) else None
    if name == "at":
        found = finite(value)
        return None if found is None else float(found)
    if name in _TEXTS:
        return value[:_TEXT] if isinstance(value, str) else None
    if name == "missing":
        return _peers(value) if isinstance(value, list) else None
    return value


def _peers(value: list[Any]) -> tuple[str, ...] | None:
    return tuple(peer[:_TEXT] for peer in value[:_PEERS]) if all(isinstance(peer, str) for peer in value) else None
