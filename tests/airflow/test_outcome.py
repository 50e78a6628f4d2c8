"""How a run that is over ends its task, and what becomes of its objects."""

from __future__ import annotations

import pytest

from stepset.watch.state import Failure, FailureKind
from stepset_airflow.run.exit_policy import check_policy, should_delete, verdict


def failure(kind: FailureKind, exit_code: int | None = 1) -> Failure:
    return Failure(kind, "it failed.", "mend it.", exit_code=exit_code)


@pytest.mark.parametrize("kind", FailureKind)
def test_only_what_was_refused_or_cancelled_is_not_tried_again(kind: FailureKind) -> None:
    final = kind in (FailureKind.REJECTED, FailureKind.CANCELLED)
    assert verdict(failure(kind)) == ("fail" if final else "retry")


def test_a_lost_run_is_tried_again() -> None:
    assert verdict(None) == "retry"


def test_the_policy_decides_by_exit_code_before_kind() -> None:
    policy = {42: "skip", "UserError": "fail"}
    assert verdict(failure(FailureKind.USER_ERROR, 42), policy) == "skip"
    assert verdict(failure(FailureKind.USER_ERROR, 1), policy) == "fail"
    assert verdict(failure(FailureKind.OUT_OF_MEMORY, None), policy) == "retry"


def test_an_exit_code_may_be_text_since_json_knows_no_other_keys() -> None:
    assert verdict(failure(FailureKind.USER_ERROR, 42), {"42": "skip"}) == "skip"


def test_an_unknown_verdict_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="exit_code_policy: 42: 'ignore' is not known; use fail, retry or skip"):
        check_policy({42: "ignore"})


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
def test_the_objects_of_a_run_are_deleted_as_asked(action: str, succeeded: bool, expected: bool) -> None:
    assert should_delete(action, succeeded) is expected
