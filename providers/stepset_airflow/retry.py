"""A retry policy for Airflow tasks: `retry_policy=TrainingRetryPolicy()`.

The policy retries a task if the cluster caused the failure. If the training code caused the failure, the policy does
not retry the task.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

from stepset_airflow.exceptions import TrainingTaskError

if TYPE_CHECKING:
    from airflow.sdk import Context

RETRIED = ("Infrastructure", "Lost", "Rendezvous", "Unschedulable", "ImagePull")
"""The kinds of failures after which another try may succeed."""


class TrainingRetryPolicy(RetryPolicy):
    """Retries a task up to `retries` times if its run failed with one of the given kinds of failures.

    After any other kind of failure, the task is not retried.

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

        If the exception is not a TrainingTaskError, the method returns Airflow's default decision.
        """
        if not isinstance(exception, TrainingTaskError):
            return RetryDecision.default()
        if exception.kind not in self.kinds:
            return RetryDecision.fail(f"{exception.kind}: another try would fail too")
        delay = None if self.delay is None else timedelta(seconds=self.delay)
        return RetryDecision.retry(delay, f"{exception.kind}: the training continues from its last checkpoint")

    def serialize(self) -> dict[str, Any]:
        """Returns the fields of the policy. Airflow stores these fields in the serialized DAG."""
        return {"kinds": list(self.kinds), "delay": self.delay}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> TrainingRetryPolicy:
        """Creates the policy from the fields that `serialize` returned."""
        return cls(data["kinds"], data["delay"])
