"""The failures that TrainingRetryPolicy retries."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import RetryAction
from airflow.sdk.exceptions import AirflowException

from stepset.run_status import FailureKind
from stepset_airflow import TrainingRetryPolicy, TrainingTaskError

pytestmark = pytest.mark.airflow

CLUSTER_FAILURES = {"Infrastructure", "Lost", "Rendezvous", "Unschedulable", "ImagePull"}


@pytest.mark.parametrize("kind", FailureKind)
def test_failures_of_the_cluster_are_retried_and_failures_of_the_code_are_not(kind: FailureKind) -> None:
    decision = TrainingRetryPolicy().evaluate(TrainingTaskError("it failed", kind.value), 1, 3)
    expected = RetryAction.RETRY if kind.value in CLUSTER_FAILURES else RetryAction.FAIL
    assert decision.action is expected


def test_errors_of_other_kinds_are_left_to_airflow() -> None:
    assert TrainingRetryPolicy().evaluate(AirflowException("else"), 1, 3).action is RetryAction.DEFAULT


def test_kinds_and_delay_can_be_set_and_survive_serialization() -> None:
    policy = TrainingRetryPolicy.deserialize(TrainingRetryPolicy(["OutOfMemory"], delay=90).serialize())
    decision = policy.evaluate(TrainingTaskError("it failed", "OutOfMemory", 137), 1, 3)
    assert (decision.action, decision.retry_delay) == (RetryAction.RETRY, timedelta(seconds=90))
    assert policy.evaluate(TrainingTaskError("it failed", "Lost"), 1, 3).action is RetryAction.FAIL
