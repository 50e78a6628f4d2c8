"""The states of ranks after the end of an attempt are the same for both backends."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.run_status import Failure, FailureKind, RankStatus
from stepset.watch.state.rank_states import final_rows

FAILURE = Failure(FailureKind.USER_ERROR, "", "", rank=0, aftermath=("rank 1",), same_error=("rank 2",))


def state_of(row: RankStatus, failure: Failure | None = FAILURE) -> str:
    (found,) = final_rows([row], failure)
    return found.state


@pytest.mark.parametrize("end", [{"signal": 15}, {"signal": 9}, {"exit_code": 143}, {"exit_code": 137}, {}])
def test_a_rank_that_was_stopped_because_of_the_failure_is_stopped(end: dict[str, Any]) -> None:
    assert state_of(RankStatus("rank 1", 1, "node-0", state="Failed", **end)) == "Stopped"
    assert state_of(RankStatus("rank 0", 0, "node-0", state="Failed", **end)) == "Failed"


@pytest.mark.parametrize("end", [{"signal": 11}, {"exit_code": 1}])
def test_a_rank_with_another_end_has_failed_although_it_is_in_the_aftermath(end: dict[str, Any]) -> None:
    assert state_of(RankStatus("rank 1", 1, "node-0", state="Failed", **end)) == "Failed"


def test_a_rank_with_the_error_of_the_first_rank_has_failed_even_if_it_was_stopped() -> None:
    assert state_of(RankStatus("rank 2", 2, "node-0", state="Running", signal=15)) == "Failed"


@pytest.mark.parametrize("state", ["Pending", "Running"])
def test_no_rank_waits_or_runs(state: str) -> None:
    assert state_of(RankStatus("rank 3", 3, "node-0", state=state), None) == "Stopped"
