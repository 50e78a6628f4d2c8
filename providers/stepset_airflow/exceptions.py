"""The exception of a failed run. Retry policies and callbacks can read its attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from stepset.run_status import RunStatus


class TrainingTaskError(AirflowException):
    """The run of a task failed, but another try may succeed.

    Args:
        text: the diagnosis of the failure.
        kind: the kind of the failure, a value of `stepset.FailureKind`. The default is `Lost`, which means that the
            reason of the failure is unknown.
        exit_code: the exit code of the rank that failed first. None if this rank has no exit code.
    """

    def __init__(self, text: str, kind: str = "Lost", exit_code: int | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.exit_code = exit_code

    @classmethod
    def of(cls, status: RunStatus) -> TrainingTaskError:
        """Returns the exception for a failed run whose status is `status`."""
        from stepset.watch.present.failure_report import failure_text

        failure = status.failure
        if failure is None:
            return cls(failure_text(status))
        return cls(failure_text(status), failure.kind.value, failure.exit_code)
