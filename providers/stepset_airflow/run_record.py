"""The record of a task's run, and the next step of a task.

A task may be executed several times, because a worker died, because Airflow retries the task, or because a user cleared
the task. Each execution reads the record and decides on the next step. Each execution stores the record before it
creates a run, so that no run exists without a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from stepset.defaults import STARTUP_TIMEOUT, TARGET
from stepset_airflow.hooks.cluster import ClusterAccess

KEY = "stepset_run"
"""The key in the task state store."""

SUCCEEDED, RETRY, START_NEW = "succeeded", "retry", "start_new"
_REPORTED = (SUCCEEDED, "fail", "skip")
"""If `RunRecord.ended` has one of these values, a later execution of the task ends in the same way."""


@dataclass(frozen=True)
class FollowSettings:
    """What a worker needs to follow a run, besides the name and the uid of the run.

    The values are the values of the task when the run was created. A worker that follows the run does not read the job,
    because the DAG file, the job file or the code may have changed, or may no longer exist.

    Args:
        job: the name of the job.
        target: the kind of the workload.
        access: the parameters that select the cluster. `RunRecord.namespace` is the namespace of the run.
        sources: the sources whose lines are written to the task log. None means all sources.
        ranks: the ranks whose lines are written to the task log. None means all ranks.
        admission_timeout, startup_timeout, quiet_after: time limits in seconds, as for the operator. None means no
            limit.
    """

    job: str = ""
    target: str = TARGET
    access: ClusterAccess = field(default_factory=ClusterAccess)
    sources: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None
    admission_timeout: float | None = None
    startup_timeout: float | None = STARTUP_TIMEOUT
    quiet_after: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class RunRecord:
    """The record of a task's run.

    Args:
        name: the name of the run.
        namespace: the namespace of the run.
        generation: the number of runs that the task has had, including this run.
        epoch: the try number at which the task was last cleared. 0 if the task was never cleared.
        attempt: the number of earlier runs since the task was last cleared.
        uid: the uid of the workload. Empty until the workload has been created.
        ended: how the task ended: `succeeded`, `retry`, `fail` or `skip`. If a user cleared the task while it was
            running, the value is `start_new`. Empty until the task has ended.
        status: the final status of the run as plain data. None if no later execution needs the status.
        follow: how the run is followed.
    """

    name: str
    namespace: str
    generation: int = 1
    epoch: int = 0
    attempt: int = 0
    uid: str = ""
    ended: str = ""
    status: Mapping[str, Any] | None = None
    follow: FollowSettings = field(default_factory=FollowSettings)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "follow": self.follow.to_dict()}

    @classmethod
    def from_dict(cls, data: object) -> RunRecord:
        """Creates a record from the result of `to_dict`.

        Raises:
            ValueError: `data` is not the result of `to_dict`.
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
        """Returns a copy of the record with the given values of `ended` and `status`."""
        return replace(self, ended=ended, status=status)


@dataclass(frozen=True)
class Reattach:
    """The next step is to find the run of `record`, or to create the run if it was not created yet."""

    record: RunRecord


@dataclass(frozen=True)
class Finished:
    """The next step is to end the task as stated in the record, because the end of the run was already handled."""

    record: RunRecord


@dataclass(frozen=True)
class StartNew:
    """The next step is to start a new run.

    Args:
        generation: the number of runs of the task, including the new run.
        attempt: the number of earlier runs since the task was last cleared.
        before: the record of the previous run. If that run is still active, that run is ended before the new run
            starts. If that run has finished, `on_finish_action` determines whether its objects are deleted.
    """

    generation: int = 1
    attempt: int = 0
    before: RunRecord | None = None


def next_step(record: RunRecord | None, epoch: int, durable: bool) -> Reattach | Finished | StartNew:
    """Returns the next step of an execution of a task.

    Args:
        record: the stored record of the task. None if no record is stored.
        epoch: the try number at which the task was last cleared. 0 if the task was never cleared.
        durable: whether the execution continues the run of an earlier try.

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
