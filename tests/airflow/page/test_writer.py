"""A run's page is written while a worker follows the run, and neither waits for it nor fails for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from stepset.watch.state import Phase, Progress, RunStatus
from stepset_airflow.page.history import RunHistory
from stepset_airflow.page.throttle import BUDGET, WriteThrottle
from stepset_airflow.page.writer import PageWriter
from tests.waiting import until

RUNNING = RunStatus("train-1", "train", "local", Phase.RUNNING, created=time.time())


class Database:
    """Keeps what is written; can be told to hang or to refuse."""

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


def test_of_what_comes_in_the_meantime_only_the_newest_is_written(database: Database) -> None:
    with PageWriter(RunHistory({}), database.save) as page:
        for step in range(2000):
            page.on_status(RUNNING.with_(progress=Progress(step=step, metrics={"loss": 1.0})))
        assert until(lambda: len(database.written) >= 2)
    assert len(database.written) <= 4
    assert database.written[-1]["progress"]["step"] == 1999


def test_a_run_is_not_held_up_by_a_database_that_hangs(database: Database) -> None:
    database.answers.clear()
    page = PageWriter(RunHistory({}), database.save)
    for step in range(100):
        page.on_status(RUNNING.with_(progress=Progress(step=step)))  # comes back, or this test hangs
    database.answers.set()
    page.close()
    assert database.written[-1]["progress"]["step"] == 99


def test_a_page_that_cannot_be_written_is_a_warning_and_nothing_else(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.refuses = True
    with caplog.at_level(logging.WARNING), PageWriter(RunHistory({}), database.save) as page:
        page.on_status(RUNNING)
        assert until(lambda: "no database" in caplog.text)
        database.refuses = False
        page.on_status(RUNNING.with_(phase=Phase.SUCCEEDED))
    assert database.phases() == ["Succeeded"]
    assert caplog.text.count("cannot be written") == 1


def test_a_page_of_which_nothing_was_ever_seen_is_not_written(database: Database) -> None:
    PageWriter(RunHistory({}), database.save).close()
    assert database.written == []


def test_a_process_that_follows_many_runs_writes_no_more_often_for_it() -> None:
    for runs in (1, 10, 1000):
        assert runs / WriteThrottle(runs).wait(0, urgent=True) <= max(1.0, BUDGET)
