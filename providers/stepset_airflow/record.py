"""What a task remembers of its run, and what follows from that when it comes again. Pure.

Written to the task state store before and after everything that could leave a run behind; read when the task is
executed, which may be for the first time, after its worker died, as a retry, or because somebody cleared it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

KEY = "stepset_run"
"""Of the task state store."""

SUCCEEDED, RETRY, ANEW = "succeeded", "retry", "anew"


@dataclass(frozen=True)
class Record:
    """A task's run.

    Args:
        name: the run's name.
        namespace: where it is.
        generation: how many runs the task has had.
        epoch: try number at which the task was cleared last; 0: never.
        attempt: how often the same work was tried before.
        uid: of its workload; empty until it is known that there is one.
        ended: how its end was dealt with: `succeeded`, `retry`, `fail`, `skip`, `anew` (cleared while it ran); empty
            until it was.
        status: its final status, as plain data, where the task may have to tell it again.
    """

    name: str
    namespace: str
    generation: int = 1
    epoch: int = 0
    attempt: int = 0
    uid: str = ""
    ended: str = ""
    status: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """The record that `to_dict` wrote."""
        return cls(**data)

    def over(self, ended: str, status: Mapping[str, Any] | None = None) -> Record:
        """The same, dealt with."""
        return replace(self, ended=ended, status=status)


@dataclass(frozen=True)
class Again:
    """The run is this one: find it, or make it where it was not made yet."""

    record: Record


@dataclass(frozen=True)
class Told:
    """The run is over and was dealt with; the task ends as it was about to end when its worker died."""

    record: Record


@dataclass(frozen=True)
class Anew:
    """A new run.

    Args:
        generation: its number.
        attempt: how often the same work was tried before.
        before: the run before it: one that may still go on is to be ended first, and of one that is over nothing is to
            stay that its worker died too early to delete.
    """

    generation: int = 1
    attempt: int = 0
    before: Record | None = None


def next_step(record: Record | None, epoch: int, durable: bool) -> Again | Told | Anew:
    """What an execution of the task has to do.

    Args:
        record: what the task remembers.
        epoch: try number at which it was cleared last; 0: never.
        durable: whether it goes on with a run of an earlier try.

    >>> next_step(None, 0, True)
    Anew(generation=1, attempt=0, before=None)
    """
    if record is None:
        return Anew()
    generation = record.generation + 1
    if record.epoch != epoch or record.ended == ANEW:
        return Anew(generation, before=record)
    if record.ended == RETRY:
        return Anew(generation, record.attempt + 1, before=record)
    if record.ended:
        return Told(record)
    return Again(record) if durable else Anew(generation, record.attempt + 1, before=record)
