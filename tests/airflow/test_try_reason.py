"""The first line of the log of a task that is executed again."""

from __future__ import annotations

from typing import Any

import pytest

from stepset_airflow.page.past_tries import KEY, failure_of
from stepset_airflow.run.try_reason import local_try_reason, try_reason
from stepset_airflow.run_record import RunRecord, next_step

RECORD = RunRecord("train-1", "ml", uid="u")
FAILED = "run train-1 failed after 6.4 s: OutOfMemory: rank 3 was killed"


def reason(record: RunRecord | None, epoch: int = 0, *, durable: bool = True, try_number: int = 2) -> str | None:
    step = next_step(record, epoch, durable)
    return try_reason(step, record, epoch, try_number, {"train-1": FAILED}.get)  # type: ignore[arg-type]


def test_the_first_try_has_no_reason() -> None:
    assert reason(None, try_number=1) is None


def test_a_retry_states_how_the_last_run_failed() -> None:
    assert reason(RECORD.with_end("retry")) == f"this try starts another run, because {FAILED}"


def test_a_retry_after_a_run_that_timed_out_or_was_killed_states_that_it_did_not_succeed() -> None:
    record = RunRecord("train-9", "ml", uid="u", ended="retry")
    assert reason(record) == "this try starts another run, because run train-9 of an earlier try did not succeed"


def test_a_try_that_finds_a_run_states_that_its_worker_ended() -> None:
    assert reason(RECORD) == (
        "this try follows run train-1, because an earlier worker of this task started it and ended before it"
    )
    assert reason(RunRecord("train-1", "ml")) == (
        "this try finds or creates run train-1, because an earlier worker of this task ended while it created it"
    )


def test_a_task_that_is_not_durable_states_that_the_run_is_ended() -> None:
    assert reason(RECORD, durable=False) == (
        "this try starts another run, because durable is False; run train-1 of an earlier try is ended first"
    )


@pytest.mark.parametrize("record", [None, RECORD, RECORD.with_end("retry"), RECORD.with_end("start_new")])
def test_a_cleared_task_states_that_it_was_cleared(record: RunRecord | None) -> None:
    assert reason(record, epoch=1) == "this try starts a new training, because the task was cleared"


@pytest.mark.parametrize("ended", ["succeeded", "fail", "skip"])
def test_a_task_whose_end_is_recorded_states_that(ended: str) -> None:
    assert str(reason(RECORD.with_end(ended, {}))).startswith(
        f"this try ends the task as recorded ({ended}), because run train-1 is over"
    )


def test_a_retry_without_an_earlier_run_states_that() -> None:
    assert reason(None) == "this try starts the first run, because no earlier try created one"


def test_a_retry_of_a_local_run_states_how_the_last_one_failed() -> None:
    assert local_try_reason(0, 0, lambda: FAILED) is None
    assert local_try_reason(1, 0, lambda: FAILED) == f"this try starts another run, because {FAILED}"
    assert local_try_reason(1, 0, lambda: "") == "this try starts another run, because an earlier try did not succeed"
    assert local_try_reason(0, 1, lambda: FAILED) == "this try starts a new training, because the task was cleared"


class Store:
    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self, key: str) -> Any:
        assert key == KEY
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        raise NotImplementedError


TRIES = [{"run": "train-1", "failure": "out of\nmemory"}, {"run": "train-2", "failure": "lost"}]


@pytest.mark.parametrize(
    ("stored", "run", "failure"),
    [
        (TRIES, "train-1", "out of memory"),
        (TRIES, None, "lost"),
        (TRIES, "train-3", ""),
        ([], None, ""),
        (None, None, ""),
        ([5, {"failure": 5}], None, ""),
        (ConnectionError("no answer"), None, ""),
    ],
)
def test_how_a_run_failed_is_read_from_the_stored_tries(stored: Any, run: str | None, failure: str) -> None:
    assert failure_of(Store(stored), run) == failure
