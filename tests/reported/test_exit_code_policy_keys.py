"""A key of `exit_code_policy` matches some failure, or is an error that names the nearest key when a DAG is parsed."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.run_status import Failure, FailureKind
from stepset_airflow.run.exit_policy import check_policy, outcome_of, parse_key, skip_reason

pytestmark = pytest.mark.airflow

DOCS = Path(__file__).parents[2] / "docs"
KILLED = Failure(FailureKind.OUT_OF_MEMORY, "it was killed.", "use less.", signal=9)
EXITED = Failure(FailureKind.OUT_OF_MEMORY, "it was killed.", "use less.", exit_code=137)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("OOMKilled", "did you mean 'OutOfMemory'?"),
        ("oom", "did you mean 'OutOfMemory'?"),
        ("outofmemory", "did you mean 'OutOfMemory'?"),
        ("OUT_OF_MEMORY", "did you mean 'OutOfMemory'?"),
        ("user error", "did you mean 'UserError'?"),
        ("Timeout", "did you mean 'DeadlineExceeded'?"),
        ("ImagePullBackOff", "did you mean 'ImagePull'?"),
        ("Evicted", "did you mean 'Infrastructure'?"),
        ("canceled", "did you mean 'Cancelled'?"),
        ("sigkill", "did you mean 'SIGKILL'?"),
        ("SIGKIL", "did you mean 'SIGKILL'?"),
        ("007", "did you mean '7'?"),
        (" 42", "did you mean '42'?"),
        ("+1", "did you mean '1'?"),
        (42.0, "did you mean 42?"),
        (1.5, "use a number from 1 to 255, a signal such as 'SIGKILL' or -9, or one of the kinds Cancelled, "),
        (None, "use a number from 1 to 255"),
        (True, "use a number from 1 to 255"),
        ("٣", "use a number from 1 to 255"),
        ("", "use a number from 1 to 255"),
        ("*", "use a number from 1 to 255"),
        ((1, 2), "use a number from 1 to 255"),
        (float("nan"), "use a number from 1 to 255"),
        (float("inf"), "use a number from 1 to 255"),
        (0, "use a number from 1 to 255, or -N for signal N"),
        ("0", "use a number from 1 to 255, or -N for signal N"),
        (256, "use a number from 1 to 255, or -N for signal N"),
        (-100, "use a number from 1 to 255, or -N for signal N"),
        ("99999", "use a number from 1 to 255, or -N for signal N"),
    ],
)
def test_a_key_that_never_matches_is_an_error_with_the_nearest(key: Any, hint: str) -> None:
    with pytest.raises(ValueError, match=r"^exit_code_policy: ") as raised:
        check_policy({key: "skip"})
    assert repr(key) in str(raised.value) and hint in str(raised.value)


KEYS_OF_SIGKILL = [137, "137", -9, "-9", "SIGKILL", "KILL", signal.SIGKILL]


@pytest.mark.parametrize("key", KEYS_OF_SIGKILL)
@pytest.mark.parametrize("failure", [KILLED, EXITED], ids=["signal", "exit code"])
def test_each_form_of_a_signal_matches_each_form_of_its_report(key: Any, failure: Failure) -> None:
    check_policy({key: "skip"})
    assert outcome_of(failure, {key: "skip", "OutOfMemory": "fail"}) == "skip"
    assert outcome_of(Failure(FailureKind.USER_ERROR, "", "", exit_code=9), {key: "skip"}) == "retry"


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_is_a_key(kind: FailureKind) -> None:
    for key in (kind, kind.value):
        check_policy({key: "skip"})
        assert outcome_of(Failure(kind, "", ""), {key: "skip"}) == "skip"


@given(st.integers(1, 255))
def test_every_exit_code_of_a_failure_is_a_key(code: int) -> None:
    for key in (code, str(code)):
        check_policy({key: "skip"})
        assert outcome_of(Failure(FailureKind.USER_ERROR, "", "", exit_code=code), {key: "skip"}) == "skip"


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans(), st.binary()))
def test_any_key_matches_some_failure_or_is_an_error_of_one_line(key: Any) -> None:
    try:
        meaning = parse_key(key)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    assert meaning in [*FailureKind, *range(1, 256)]


def test_two_keys_for_one_signal_with_different_outcomes_are_an_error() -> None:
    with pytest.raises(ValueError, match="137 and 'SIGKILL' mean the same, but map to retry and fail; leave one out"):
        check_policy({137: "retry", "SIGKILL": "fail"})
    check_policy({137: "fail", "SIGKILL": "fail"})


@pytest.mark.parametrize(("failure", "what"), [(KILLED, "SIGKILL"), (EXITED, "exit code 137")])
def test_a_skipped_task_names_the_signal_or_the_exit_code(failure: Failure, what: str) -> None:
    assert skip_reason(failure, {-9: "skip"}) == f"the task is skipped, because exit_code_policy maps {what} to skip"


def test_the_page_lists_the_kinds() -> None:
    page = (DOCS / "airflow.md").read_text(encoding="utf-8")
    listed = page.split("- A [kind of failure](failures.md):")[1].split("\n\n")[0]
    assert re.findall(r"`(\w+)`", listed) == [kind.value for kind in FailureKind]
