"""`retry_policy=TrainingRetryPolicy()`: what the cluster did to a training is tried again, what its code did is not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

from stepset_airflow.exceptions import TrainingFailedError

if TYPE_CHECKING:
    from airflow.sdk import Context

RETRIED = ("Infrastructure", "Lost", "Rendezvous", "Unschedulable", "ImagePull")
"""Kinds of failures that may have gone by when the training is tried again."""


class TrainingRetryPolicy(RetryPolicy):
    """Tries again what another try may mend, and fails at once otherwise; the task's `retries` are the limit.

    Args:
        kinds: kinds of failures that are tried again.
        delay: seconds before; default: the task's retry_delay.
    """

    def __init__(self, kinds: Iterable[str] = RETRIED, delay: float | None = None) -> None:
        self.kinds = tuple(kinds)
        self.delay = delay

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decides by the kind of the failure; errors that are no training's are left to Airflow."""
        if not isinstance(exception, TrainingFailedError):
            return RetryDecision.default()
        if exception.kind not in self.kinds:
            return RetryDecision.fail(f"{exception.kind}: another try would fail too")
        delay = None if self.delay is None else timedelta(seconds=self.delay)
        return RetryDecision.retry(delay, f"{exception.kind}: the training goes on from its last checkpoint")

    def serialize(self) -> dict[str, Any]:
        """For the serialized DAG."""
        return {"kinds": list(self.kinds), "delay": self.delay}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> TrainingRetryPolicy:
        """What `serialize` wrote."""
        return cls(data["kinds"], data["delay"])
