"""The exception of a failed training, for retry policies and callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from stepset.run_status import RunStatus


class TrainingTaskError(AirflowException):
    """A task's training failed, but another try may succeed.

    Args:
        text: the diagnosis.
        kind: the kind of the failure, a value of `stepset.FailureKind`; default: `Lost`, for an unknown reason.
        exit_code: the exit code of the first failing rank; None if it has none.
    """

    def __init__(self, text: str, kind: str = "Lost", exit_code: int | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.exit_code = exit_code

    @classmethod
    def of(cls, status: RunStatus) -> TrainingTaskError:
        """Returns the exception for the failed run with this status."""
        from stepset.watch.present.failure_report import failure_text

        failure = status.failure
        if failure is None:
            return cls(failure_text(status))
        return cls(failure_text(status), failure.kind.value, failure.exit_code)
