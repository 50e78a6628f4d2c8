"""Which states of a task say that a user has ended it, of all that Airflow has."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.utils.state import TaskInstanceState

from stepset_airflow.task_state import DELETED, is_ended

pytestmark = pytest.mark.airflow

GOES_ON = {
    "running",
    "deferred",
    "queued",
    "scheduled",
    "up_for_retry",
    "up_for_reschedule",
    "upstream_failed",
    "awaiting_input",
    None,  # cleared, or not known
}


@pytest.mark.parametrize("state", [*(each.value for each in TaskInstanceState), None, DELETED])
def test_a_task_goes_on_wherever_somebody_has_it_executed(state: Any) -> None:
    assert is_ended(state) is (state not in GOES_ON)
