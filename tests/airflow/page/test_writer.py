"""A worker writes a run's page while it follows the run; a slow or failing database does not affect the run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from stepset.run_status import Phase, Progress, RunStatus
from stepset_airflow.page.history import RunHistory
from stepset_airflow.page.throttle import BUDGET, WriteThrottle
from stepset_airflow.page.writer import PageWriter
from tests.waiting import until

RUNNING = RunStatus("train-1", "train", "local", Phase.RUNNING, created=time.time())


class Database:
    """Keeps what is written; a test can make it hang or refuse."""

    def __init__(self) -> None:
        self.written: list[Mapping[str, Any]] = []
        self.answers = threading.Event()
        self.answers.set()
        self.refuses = False

    def save(self, document: Mapping[str, Any]) -> None:
        self.answers.wait(30)
        if self.refuses:
            raise ConnectionError("no database")
        self.written.append(document)

    def phases(self) -> list[str]:
        return [each["phase"] for each in self.written]


@pytest.fixture
def database() -> Database:
    return Database()


def test_the_first_state_is_written_at_once_and_the_last_in_any_case(database: Database) -> None:
    with PageWriter(RunHistory({}), database.save) as page:
        page.on_status(RUNNING)
        assert until(lambda: bool(database.written))
        page.on_status(RUNNING.with_(phase=Phase.SUCCEEDED))
    assert database.phases() == ["Running", "Succeeded"]


def test_only_the_newest_of_several_waiting_states_is_written(database: Database) -> None:
    with PageWriter(RunHistory({}), database.save) as page:
        for step in range(2000):
            page.on_status(RUNNING.with_(progress=Progress(step=step, metrics={"loss": 1.0})))
        assert until(lambda: len(database.written) >= 2)
    assert len(database.written) <= 4
    assert database.written[-1]["progress"]["step"] == 1999


def test_a_database_that_hangs_does_not_delay_the_run(database: Database) -> None:
    database.answers.clear()
    page = PageWriter(RunHistory({}), database.save)
    for step in range(100):
        page.on_status(RUNNING.with_(progress=Progress(step=step)))  # returns, or this test hangs
    database.answers.set()
    page.close()
    assert database.written[-1]["progress"]["step"] == 99


def test_a_page_that_cannot_be_written_is_one_warning(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    database.refuses = True
    with caplog.at_level(logging.WARNING), PageWriter(RunHistory({}), database.save) as page:
        page.on_status(RUNNING)
        assert until(lambda: "no database" in caplog.text)
        database.refuses = False
        page.on_status(RUNNING.with_(phase=Phase.SUCCEEDED))
    assert database.phases() == ["Succeeded"]
    assert caplog.text.count("cannot be written") == 1


def test_a_page_without_a_status_is_not_written(database: Database) -> None:
    PageWriter(RunHistory({}), database.save).close()
    assert database.written == []


def test_a_process_that_follows_more_runs_does_not_write_more_often() -> None:
    for runs in (1, 10, 1000):
        assert runs / WriteThrottle(runs).wait(0, urgent=True) <= max(1.0, BUDGET)
