"""How a failed run ends its task, and what the task log says of it."""

from __future__ import annotations

import pytest

from stepset.watch.state import Failure, FailureKind, Phase, RunStatus
from stepset_airflow.outcome import check_policy, failure_text, verdict

BROKEN = Failure(
    FailureKind.USER_ERROR,
    "rank 3 failed: ValueError: no digits",
    "Mend the training code.",
    rank=3,
    pod="train-node-1",
    exit_code=1,
    error="ValueError: no digits",
    tail=("Traceback (most recent call last):", "ValueError: no digits"),
    restarts=2,
    aftermath=("rank 0", "rank 1"),
)


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


def test_the_diagnosis_comes_first_and_the_rank_s_last_lines_after_it() -> None:
    status = RunStatus("train-1", "train", "local", Phase.FAILED, failure=BROKEN)
    assert failure_text(status).splitlines() == [
        "run train-1 failed: UserError: rank 3 failed: ValueError: no digits",
        "Mend the training code.",
        "first to fail: rank 3, pod train-node-1, exit code 1",
        "restarts before: 2",
        "stopped because of it: rank 0, rank 1",
        "last lines of rank 3:",
        "  Traceback (most recent call last):",
        "  ValueError: no digits",
    ]


def test_a_signal_is_named_as_one() -> None:
    killed = Failure(FailureKind.INFRASTRUCTURE, "killed.", "see dmesg.", pod="node-1", signal=9)
    text = failure_text(RunStatus("r", "r", "local", Phase.FAILED, failure=killed))
    assert "first to fail: pod node-1, signal 9" in text


def test_an_error_that_the_message_leaves_out_is_added() -> None:
    failure = Failure(FailureKind.RENDEZVOUS, "the ranks did not meet.", "look at the network.", error="timed out")
    assert "error: timed out" in failure_text(RunStatus("r", "r", "local", Phase.FAILED, failure=failure))


def test_a_lost_run_says_so() -> None:
    assert failure_text(RunStatus("r", "r", "local", Phase.LOST)).startswith("run r was lost")
