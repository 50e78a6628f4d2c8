"""The record of a run in a task's state, and a trigger's event, whatever values they contain."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowException
from hypothesis import given
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.run_status import Phase, RunStatus
from stepset.watch.cluster.verdict import verdict_text
from stepset_airflow.run.record_store import RecordStore
from stepset_airflow.run.trigger_event import reported_status
from stepset_airflow.run_record import KEY, RETRY, START_NEW, SUCCEEDED, RunRecord, next_step
from stepset_airflow.task_state import TaskStateStore
from tests.fuzzing import FUZZED

pytestmark = pytest.mark.airflow

STATUS = RunStatus("run", "run", "kubernetes", phase=Phase.SUCCEEDED)
RECORD = RunRecord("train-1", "ml", uid="u1").with_end(SUCCEEDED, json.loads(verdict_text(STATUS)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
FIELDS = sorted({*RECORD.to_dict(), "unknown"})
ENDS = st.sampled_from(["", SUCCEEDED, RETRY, "fail", "skip", START_NEW])


class State:
    """A task state store with one value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self, key: str) -> Any:
        return self.value if key == KEY else None


def stored_record(value: Any) -> RunRecord | None:
    return RecordStore(cast("TaskStateStore", State(value))).read()


def test_a_stored_record_is_read() -> None:
    assert stored_record(json.loads(json.dumps(RECORD.to_dict()))) == RECORD
    assert stored_record(None) is None


@pytest.mark.parametrize(
    "value",
    [
        [],
        "train-1",
        {},
        RECORD.to_dict() | {"name": ""},
        RECORD.to_dict() | {"ended": "lost"},
        RECORD.to_dict() | {"status": None},
        RECORD.to_dict() | {"generation": "1"},
    ],
)
def test_a_value_that_is_no_record_starts_no_second_run(value: Any) -> None:
    with pytest.raises(BadInputError, match=r"state 'stepset_run' is not the record of a run: .*stepset list"):
        stored_record(value)


@FUZZED
@given(st.sampled_from(FIELDS), JSON, ENDS)
def test_any_value_of_a_field_is_usable_or_an_error(name: str, value: Any, ended: str) -> None:
    for stored in (RECORD.to_dict() | {"ended": ended, name: value}, value):
        try:
            record = stored_record(stored)
        except BadInputError as error:
            assert "\n" not in str(error)
            continue
        assert record is None or next_step(record, record.epoch, durable=True)


@FUZZED
@given(JSON, JSON)
def test_any_event_is_a_status_or_an_error(status: Any, other: Any) -> None:
    events: list[dict[str, Any]] = [
        {"status": status},
        {"status": STATUS.to_dict() | {"phase": other}},
        {"error": other},
    ]
    for event in events:
        try:
            assert isinstance(reported_status(event), RunStatus)
        except AirflowException as error:
            assert "\x1b" not in str(error)
    assert reported_status({"status": STATUS.to_dict()}) == STATUS
