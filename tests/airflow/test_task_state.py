"""The state of a task as Airflow reports it, and the states that mean that a user has ended the task."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.utils.state import TaskInstanceState

from stepset_airflow.task_state import DELETED, is_ended, state_of
from tests.airflow.airflow_version import AIRFLOW_3_4

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


REGION = uuid.UUID(int=7)


class Supervisor:
    """Stands for Airflow's answers about the task `t`, in a worker.

    Args:
        latest: the state of the latest iteration; None: the DAG run does not exist.
        final: the final states of the iterations.
    """

    def __init__(self, latest: str | None, final: dict[int, str]) -> None:
        self.latest, self.final = latest, final

    def send(self, message: Any) -> Any:
        from airflow.sdk.execution_time import comms

        if isinstance(message, comms.GetTaskStates):
            states = {} if self.latest is None else {"r": {"t": self.latest}}
            return comms.TaskStatesResult(task_states=states)
        assert isinstance(message, comms.GetTaskBreadcrumbs), message
        where = {"task_id": "t", "map_index": -1, "region_id": str(REGION)}
        return comms.TaskBreadcrumbsResult(
            breadcrumbs=[{**where, "region_index": index, "state": state} for index, state in self.final.items()]
        )


@pytest.mark.skipif(not AIRFLOW_3_4, reason="Airflow 3.3 has no loops")
@pytest.mark.parametrize(
    ("latest", "final", "ended"),
    [
        pytest.param("running", {}, False, id="the worker shuts down"),
        pytest.param("success", {1: "success", 2: "success"}, False, id="the worker shuts down after later iterations"),
        pytest.param("failed", {0: "failed"}, True, id="marked failed"),
        pytest.param("running", {0: "failed"}, True, id="marked failed while a later iteration runs"),
        pytest.param("restarting", {}, True, id="cleared"),
        pytest.param(None, {}, True, id="deleted"),
    ],
)
def test_the_first_iteration_of_a_loop_is_ended_by_its_own_state(
    monkeypatch: pytest.MonkeyPatch, latest: str | None, final: dict[int, str], ended: bool
) -> None:
    from airflow.sdk.execution_time import task_runner

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(latest, final), raising=False)
    ti: Any = SimpleNamespace(
        dag_id="d", run_id="r", task_id="t", map_index=-1, region_id=REGION, region_index=0, try_number=1
    )
    assert is_ended(state_of(ti)) is ended
