"""A task's record of its run, and what an execution of the task has to do. Pure.

The record is stored before and after every step that could leave a run behind. It is read when the task is executed:
for the first time, after its worker died, as a retry, or because a user cleared it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

KEY = "stepset_run"
"""Key in the task state store."""

SUCCEEDED, RETRY, START_NEW = "succeeded", "retry", "anew"


@dataclass(frozen=True)
class RunRecord:
    """A task's run.

    Args:
        generation: how many runs the task has had.
        epoch: try number at which the task was cleared last; 0: never.
        attempt: how often the same work was tried before.
        uid: of the workload; empty until it is known to exist.
        ended: how the end was handled: `succeeded`, `retry`, `fail`, `skip`, `anew` (cleared while it ran); empty: not
            yet.
        status: the final status as plain data, if the task may have to report it again.
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
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunRecord:
        return cls(**data)

    def over(self, ended: str, status: Mapping[str, Any] | None = None) -> RunRecord:
        """Returns a record whose end was handled."""
        return replace(self, ended=ended, status=status)


@dataclass(frozen=True)
class Reattach:
    """The run is this one: find it, or create it if it was not created yet."""

    record: RunRecord


@dataclass(frozen=True)
class Finished:
    """The run is over and was handled; the task ends as it was about to end when its worker died."""

    record: RunRecord


@dataclass(frozen=True)
class StartNew:
    """A new run, the task's `generation`th; the same work was tried `attempt` times before.

    `before` is the run before it. If it is not over, it is ended first; otherwise objects that its worker left are
    deleted.
    """

    generation: int = 1
    attempt: int = 0
    before: RunRecord | None = None


def next_step(record: RunRecord | None, epoch: int, durable: bool) -> Reattach | Finished | StartNew:
    """Returns what an execution of the task has to do; `durable` tasks continue the run of an earlier try.

    >>> next_step(None, 0, True)
    StartNew(generation=1, attempt=0, before=None)
    """
    if record is None:
        return StartNew()
    generation = record.generation + 1
    if record.epoch != epoch or record.ended == START_NEW:
        return StartNew(generation, before=record)
    if record.ended == RETRY:
        return StartNew(generation, record.attempt + 1, before=record)
    if record.ended:
        return Finished(record)
    return Reattach(record) if durable else StartNew(generation, record.attempt + 1, before=record)
