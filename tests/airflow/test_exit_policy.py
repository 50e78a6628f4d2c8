"""The verdict on the task of an ended run, and whether the run's objects are deleted."""

from __future__ import annotations

import pytest

from stepset.run_status import Failure, FailureKind
from stepset_airflow.run.exit_policy import check_policy, outcome_of, should_delete, skip_reason


def failure(kind: FailureKind, exit_code: int | None = 1) -> Failure:
    return Failure(kind, "it failed.", "fix it.", exit_code=exit_code)


@pytest.mark.parametrize("kind", FailureKind)
def test_every_failure_is_retried_unless_the_run_was_rejected_or_cancelled(kind: FailureKind) -> None:
    final = kind in (FailureKind.REJECTED, FailureKind.CANCELLED)
    assert outcome_of(failure(kind)) == ("fail" if final else "retry")


def test_a_lost_run_is_retried() -> None:
    assert outcome_of(None) == "retry"


def test_exit_codes_take_precedence_over_kinds_in_the_policy() -> None:
    policy = {42: "skip", "UserError": "fail"}
    assert outcome_of(failure(FailureKind.USER_ERROR, 42), policy) == "skip"
    assert outcome_of(failure(FailureKind.USER_ERROR, 1), policy) == "fail"
    assert outcome_of(failure(FailureKind.OUT_OF_MEMORY, None), policy) == "retry"


def test_an_exit_code_may_be_text_because_json_has_no_other_keys() -> None:
    assert outcome_of(failure(FailureKind.USER_ERROR, 42), {"42": "skip"}) == "skip"


def test_an_unknown_verdict_is_refused_with_its_key_and_value() -> None:
    with pytest.raises(ValueError, match="exit_code_policy: 42: 'ignore' is not known; use fail, retry or skip"):
        check_policy({42: "ignore"})


def test_each_problem_of_the_policy_is_a_line() -> None:
    with pytest.raises(ValueError, match=r"^exit_code_policy: 42: 'ignore' .*\n.*: 300 is the .*\n.*: 'oom' is"):
        check_policy({42: "ignore", 300: "skip", "oom": "fail"})


@pytest.mark.parametrize(
    ("action", "succeeded", "expected"),
    [
        ("keep", True, False),
        ("keep", False, False),
        ("delete", True, True),
        ("delete", False, True),
        ("delete_succeeded", True, True),
        ("delete_succeeded", False, False),
    ],
)
def test_the_action_decides_whether_the_objects_of_a_run_are_deleted(
    action: str, succeeded: bool, expected: bool
) -> None:
    assert should_delete(action, succeeded) is expected


def test_a_skipped_task_states_which_entry_of_the_policy_decided() -> None:
    found = failure(FailureKind.USER_ERROR, 42)
    assert skip_reason(found, {"42": "skip"}) == (
        "the task is skipped, because exit_code_policy maps exit code 42 to skip"
    )
    assert skip_reason(found, {"UserError": "skip"}) == (
        "the task is skipped, because exit_code_policy maps UserError to skip"
    )
