"""The exceptions of failed runs. Retry policies and callbacks can read their attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout

if TYPE_CHECKING:
    from stepset.hang import Hang
    from stepset.run_status import RunStatus


class TrainingTaskError(AirflowException):
    """The run of a task failed, but another try may succeed.

    Args:
        text: the diagnosis of the failure.
        kind: the kind of the failure, a value of `stepset.FailureKind`. The default is `Lost`, which means that the
            reason of the failure is unknown.
        exit_code: the exit code of the rank that failed first. None if this rank has no exit code.
        hang: the hang that lasted until the deadline of the run or until a timeout. None if there was none.
    """

    def __init__(self, text: str, kind: str = "Lost", exit_code: int | None = None, hang: Hang | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.exit_code = exit_code
        self.hang = hang

    @classmethod
    def of(cls, status: RunStatus) -> TrainingTaskError:
        """Returns the exception for a failed run whose status is `status`."""
        from stepset.watch.hangs.stalled import ended_by_hang
        from stepset.watch.present.failure_report import failure_text

        failure = status.failure
        if failure is None:
            return cls(failure_text(status))
        return cls(failure_text(status), failure.kind.value, failure.exit_code, ended_by_hang(status))


class TrainingTimeoutError(AirflowTaskTimeout):
    """The execution_timeout of a task expired while its run hung.

    Args:
        text: what expired.
        hang: the hang of the run.
    """

    kind = "DeadlineExceeded"
    """The kind of the failure, as for `TrainingTaskError`."""

    def __init__(self, text: str, hang: Hang) -> None:
        super().__init__(text)
        self.hang = hang


def timeout_error(error: AirflowTaskTimeout, status: RunStatus | None) -> AirflowTaskTimeout:
    """Returns the exception of a task whose execution_timeout has expired.

    The message contains the name of the run and its progress. The exception has the hang of the run, if it hung.

    Args:
        status: the status of the run when the timeout expired, or None if it is unknown.
    """
    from stepset.watch.present.sentences import progress_words

    if status is None:
        return error
    text = ", ".join(filter(None, (str(error), f"run {status.name}", progress_words(status.progress))))
    return AirflowTaskTimeout(text) if status.hang is None else TrainingTimeoutError(text, status.hang)
