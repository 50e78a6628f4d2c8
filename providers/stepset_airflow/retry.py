"""`retry_policy=TrainingRetryPolicy()`: retries failures that the cluster caused, not those of the training code."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

from stepset_airflow.exceptions import TrainingTaskError

if TYPE_CHECKING:
    from airflow.sdk import Context

RETRIED = ("Infrastructure", "Lost", "Rendezvous", "Unschedulable", "ImagePull")
"""Kinds of failures after which another try may succeed."""


class TrainingRetryPolicy(RetryPolicy):
    """Retries failures of some kinds, up to the task's `retries`; others fail the task at once.

    Args:
        kinds: kinds of failures that are retried.
        delay: seconds before the next try; default: the task's retry_delay.
    """

    def __init__(self, kinds: Iterable[str] = RETRIED, delay: float | None = None) -> None:
        self.kinds = tuple(kinds)
        self.delay = delay

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Returns a decision based on the kind of failure; for other exceptions, Airflow's default."""
        if not isinstance(exception, TrainingTaskError):
            return RetryDecision.default()
        if exception.kind not in self.kinds:
            return RetryDecision.fail(f"{exception.kind}: another try would fail too")
        delay = None if self.delay is None else timedelta(seconds=self.delay)
        return RetryDecision.retry(delay, f"{exception.kind}: the training continues from its last checkpoint")

    def serialize(self) -> dict[str, Any]:
        """Returns the policy's fields, for the serialized DAG."""
        return {"kinds": list(self.kinds), "delay": self.delay}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> TrainingRetryPolicy:
        """Returns the policy with the fields that `serialize` returned."""
        return cls(data["kinds"], data["delay"])
