"""The failures that TrainingRetryPolicy retries."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import RetryAction
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout

from stepset.hang import Hang, HangGroup, HangKind, StackFrame
from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.present.sentences import progress_words
from stepset_airflow import TrainingRetryPolicy, TrainingTaskError
from stepset_airflow.exceptions import timeout_error

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


def hung(
    kind: HangKind, state: str, failure: FailureKind = FailureKind.DEADLINE_EXCEEDED, error: str = ""
) -> RunStatus:
    blocks = HangGroup((1,), state, True, frame=StackFrame("load", "/app/data.py", 17))
    hang = Hang(kind, since=690.0, silent=310.0, longest=12.0, groups=(HangGroup((0,), "collective"), blocks))
    found = Failure(failure, "the run took too long.", "", error=error)
    return RunStatus("digits-1", "digits", "kubernetes", Phase.FAILED, failure=found, hang=hang)


LEFT = hung(HangKind.LEFT, "exited")
MISSING = hung(HangKind.MISSING, "sleeping")
TIMED_OUT = hung(HangKind.MISSING, "sleeping", FailureKind.RENDEZVOUS, "RuntimeError: Timed out waiting for recv")
NETWORK = hung(HangKind.ALL_WAIT, "collective")
DISK = hung(HangKind.BLOCKED, "disk")
LOCK = hung(HangKind.BLOCKED, "lock")


@pytest.mark.parametrize("status", [LEFT, MISSING, TIMED_OUT, LOCK])
def test_a_run_that_hung_because_of_its_code_is_not_retried(status: RunStatus) -> None:
    decision = TrainingRetryPolicy().evaluate(TrainingTaskError.of(status), 1, 3)
    assert decision.action is RetryAction.FAIL


@pytest.mark.parametrize("status", [NETWORK, DISK])
def test_a_run_that_hung_because_of_the_network_or_a_disk_is_retried(status: RunStatus) -> None:
    decision = TrainingRetryPolicy().evaluate(TrainingTaskError.of(status), 1, 3)
    assert decision.action is RetryAction.RETRY


def test_a_failure_of_the_cluster_after_a_hang_is_retried() -> None:
    lost_node = hung(HangKind.MISSING, "sleeping", FailureKind.INFRASTRUCTURE, "node n-1 does not answer")
    decision = TrainingRetryPolicy().evaluate(TrainingTaskError.of(lost_node), 1, 3)
    assert decision.action is RetryAction.RETRY


def test_the_decision_states_the_hang_in_one_line() -> None:
    decision = TrainingRetryPolicy().evaluate(TrainingTaskError.of(MISSING), 1, 3)
    assert decision.reason == (
        "UserError: the run had made no progress for 5 min 10 s: rank 1 has not joined; sleeping in load data.py:17:"
        " another try would hang too"
    )


@pytest.mark.parametrize(
    ("status", "action"),
    [
        (MISSING, RetryAction.FAIL),
        (NETWORK, RetryAction.RETRY),
        (MISSING.with_(hang=None), RetryAction.DEFAULT),
        (None, RetryAction.DEFAULT),
    ],
)
def test_an_execution_timeout_is_decided_by_the_hang(status: RunStatus | None, action: RetryAction) -> None:
    error = timeout_error(AirflowTaskTimeout("execution_timeout exceeded"), status)
    run = "" if status is None else f", run {status.name}, {progress_words(status.progress)}".removesuffix(", ")
    assert isinstance(error, AirflowTaskTimeout) and str(error) == f"execution_timeout exceeded{run}"
    assert TrainingRetryPolicy().evaluate(error, 1, 3).action is action
