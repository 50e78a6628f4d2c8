"""Which failures are tried again, with TrainingRetryPolicy."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import RetryAction
from airflow.sdk.exceptions import AirflowException

from stepset.watch.state import FailureKind
from stepset_airflow import TrainingRetryPolicy, TrainingTaskError

pytestmark = pytest.mark.airflow

CLUSTERS_FAULT = {"Infrastructure", "Lost", "Rendezvous", "Unschedulable", "ImagePull"}


@pytest.mark.parametrize("kind", FailureKind)
def test_what_the_cluster_did_is_tried_again_and_what_the_code_did_is_not(kind: FailureKind) -> None:
    decision = TrainingRetryPolicy().evaluate(TrainingTaskError("it failed", kind.value), 1, 3)
    expected = RetryAction.RETRY if kind.value in CLUSTERS_FAULT else RetryAction.FAIL
    assert decision.action is expected


def test_errors_of_other_kinds_are_left_to_airflow() -> None:
    assert TrainingRetryPolicy().evaluate(AirflowException("else"), 1, 3).action is RetryAction.DEFAULT


def test_which_kinds_and_how_long_before_can_be_said_and_survives_serialization() -> None:
    policy = TrainingRetryPolicy.deserialize(TrainingRetryPolicy(["OutOfMemory"], delay=90).serialize())
    decision = policy.evaluate(TrainingTaskError("it failed", "OutOfMemory", 137), 1, 3)
    assert (decision.action, decision.retry_delay) == (RetryAction.RETRY, timedelta(seconds=90))
    assert policy.evaluate(TrainingTaskError("it failed", "Lost"), 1, 3).action is RetryAction.FAIL
