"""A retry policy for Airflow tasks: `retry_policy=TrainingRetryPolicy()`.

The policy retries a task if the cluster caused the failure. If the training code caused the failure, the policy does
not retry the task.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

from stepset_airflow.exceptions import TrainingTaskError, TrainingTimeoutError

if TYPE_CHECKING:
    from airflow.sdk import Context

RETRIED = ("Infrastructure", "Lost", "Rendezvous", "Unschedulable", "ImagePull")
"""The kinds of failures after which another try may succeed."""


class TrainingRetryPolicy(RetryPolicy):
    """Retries a task up to `retries` times if its run failed with one of the given kinds of failures.

    After any other kind of failure, the task is not retried. If the run hung until its deadline, until a timeout of a
    rank, or until the execution_timeout of the task, the kind is `Infrastructure` if the network or a disk was the
    cause (`Hang.is_infrastructure`). Otherwise, the kind is `UserError`, because the same code would hang again.

    Args:
        kinds: the kinds of failures after which the task is retried.
        delay: the number of seconds before the next try. The default is the task's `retry_delay`.
    """

    def __init__(self, kinds: Iterable[str] = RETRIED, delay: float | None = None) -> None:
        self.kinds = tuple(kinds)
        self.delay = delay

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Returns whether the task is retried after `exception`.

        If the exception is neither a TrainingTaskError nor a TrainingTimeoutError, the method returns Airflow's default
        decision.
        """
        from stepset.run_status import FailureKind
        from stepset.watch.present.hang import hang_clause

        if not isinstance(exception, (TrainingTaskError, TrainingTimeoutError)):
            return RetryDecision.default()
        hang, kind = exception.hang, exception.kind
        why = kind
        if hang is not None:
            kind = (FailureKind.INFRASTRUCTURE if hang.is_infrastructure else FailureKind.USER_ERROR).value
            why = f"{kind}: {hang_clause(hang)}"
        if kind not in self.kinds:
            return RetryDecision.fail(f"{why}: another try would {'fail' if hang is None else 'hang'} too")
        delay = None if self.delay is None else timedelta(seconds=self.delay)
        return RetryDecision.retry(delay, f"{why}: the training continues from its last checkpoint")

    def serialize(self) -> dict[str, Any]:
        """Returns the fields of the policy. Airflow stores these fields in the serialized DAG."""
        return {"kinds": list(self.kinds), "delay": self.delay}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> TrainingRetryPolicy:
        """Creates the policy from the fields that `serialize` returned."""
        return cls(data["kinds"], data["delay"])
