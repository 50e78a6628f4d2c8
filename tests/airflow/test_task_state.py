"""The task states of Airflow that mean that a user has ended the task."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.utils.state import TaskInstanceState

from stepset_airflow.task_state import DELETED, is_ended

pytestmark = pytest.mark.airflow

NOT_ENDED = {
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
def test_a_task_is_ended_unless_airflow_executes_it_or_will_do_so(state: Any) -> None:
    assert is_ended(state) is (state not in NOT_ENDED)
