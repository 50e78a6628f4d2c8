"""A task's record of its run, and the next step that follows from it when the task is executed. Pure.

The record is stored before and after every step that could otherwise leave a run without a record. Every execution of
the task reads it: the first one, one after a worker died, a retry, and one after a user cleared the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

KEY = "stepset_run"
"""Key in the task state store."""

SUCCEEDED, RETRY, START_NEW = "succeeded", "retry", "start_new"
_REPORTED = (SUCCEEDED, "fail", "skip")
"""Ends that a later execution reports again."""


@dataclass(frozen=True)
class RunRecord:
    """A task's run.

    Args:
        generation: number of runs that the task has had.
        epoch: try number at which the task was last cleared; 0: never.
        attempt: number of earlier runs since the task was last cleared.
        uid: the workload's uid; empty until the workload exists.
        ended: how the task ended: `succeeded`, `retry`, `fail`, `skip`, or `start_new` if it was cleared while it ran;
            empty until then.
        status: the final status as plain data, if an execution may report it again.
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
    def from_dict(cls, data: object) -> RunRecord:
        """Reads the data of `to_dict`.

        Raises:
            ValueError: the data is not that of a record.
        """
        from msgspec import ValidationError, convert

        from stepset.run_status import RunStatus

        try:
            record = convert(data, cls)
        except (ValidationError, RecursionError) as error:
            raise ValueError(str(error)) from error
        if not record.name or not record.namespace:
            raise ValueError("it names no run")
        if record.ended in _REPORTED:
            RunStatus.from_dict(record.status)
        elif record.ended not in ("", RETRY, START_NEW):
            raise ValueError(f"`ended` is {record.ended!r}")
        return record

    def with_end(self, ended: str, status: Mapping[str, Any] | None = None) -> RunRecord:
        """Returns the record with the run's end."""
        return replace(self, ended=ended, status=status)


@dataclass(frozen=True)
class Reattach:
    """The execution finds this run, or creates it if it was not created yet."""

    record: RunRecord


@dataclass(frozen=True)
class Finished:
    """The run's end was already handled: the task ends as recorded."""

    record: RunRecord


@dataclass(frozen=True)
class StartNew:
    """The execution starts the task's `generation`th run; `attempt` runs precede it since the task was last cleared.

    `before` is the previous run. If it is active, it is ended first; otherwise its remaining objects are deleted if
    `on_finish_action` requires it.
    """

    generation: int = 1
    attempt: int = 0
    before: RunRecord | None = None


def next_step(record: RunRecord | None, epoch: int, durable: bool) -> Reattach | Finished | StartNew:
    """Returns the next step of an execution; a `durable` task continues the run of an earlier try.

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
