"""The next step of a task that starts again, from the record of its run."""

from __future__ import annotations

import pytest

from stepset_airflow.run_record import (
    RETRY,
    START_NEW,
    SUCCEEDED,
    Finished,
    Reattach,
    RunRecord,
    StartNew,
    next_step,
)

RECORD = RunRecord("train-7b8f072d72-1", "ml", uid="u1", attempt=2)


def test_a_task_without_a_record_starts_its_first_run() -> None:
    assert next_step(None, 0, durable=True) == StartNew(1, 0)


@pytest.mark.parametrize("uid", ["", "u1"])
def test_a_task_reattaches_to_a_run_whose_end_was_not_recorded(uid: str) -> None:
    record = RunRecord("train-7b8f072d72-1", "ml", uid=uid)
    assert next_step(record, 0, durable=True) == Reattach(record)


def test_a_task_that_is_not_durable_starts_a_new_run_from_the_checkpoint() -> None:
    assert next_step(RECORD, 0, durable=False) == StartNew(2, 3, before=RECORD)


def test_a_retry_after_a_failure_starts_a_new_run_from_the_checkpoint() -> None:
    record = RECORD.with_end(RETRY)
    assert next_step(record, 0, durable=True) == StartNew(2, 3, before=record)


@pytest.mark.parametrize("ended", [SUCCEEDED, "fail", "skip"])
def test_a_recorded_end_is_reported_again(ended: str) -> None:
    record = RECORD.with_end(ended, {"phase": "Failed"})
    assert next_step(record, 0, durable=True) == Finished(record)
    assert next_step(record, 0, durable=False) == Finished(record)


@pytest.mark.parametrize("ended", [SUCCEEDED, RETRY, "fail", "skip", START_NEW])
def test_a_cleared_task_trains_from_the_beginning(ended: str) -> None:
    record = RECORD.with_end(ended)
    assert next_step(record, 2, durable=True) == StartNew(2, 0, before=record)


def test_a_cleared_task_replaces_a_run_whose_end_was_not_recorded() -> None:
    assert next_step(RECORD, 2, durable=True) == StartNew(2, 0, before=RECORD)


def test_a_task_that_was_cleared_while_it_ran_trains_from_the_beginning() -> None:
    record = RECORD.with_end(START_NEW)
    assert next_step(record, 0, durable=True) == StartNew(2, 0, before=record)
