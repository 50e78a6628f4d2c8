"""The log lines that earlier triggerers have written for a task are found in Airflow's log files."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.executors.workloads.task import TaskInstanceDTO
from airflow.jobs.triggerer_job_runner import TriggerLoggingFactory
from airflow.sdk.log import logging_processors
from airflow.utils.helpers import log_filename_template_renderer

from stepset_airflow.logs.predecessor_log import written_after

pytestmark = pytest.mark.airflow

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def ti(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskInstanceDTO:
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path))
    fields: dict[str, Any] = {
        "id": uuid.uuid4(),
        "dag_version_id": uuid.uuid4(),
        "dag_id": "digits",
        "run_id": "manual__1",
        "task_id": "train",
        "map_index": 3,
        "try_number": 2,
        "pool_slots": 1,
        "priority_weight": 1,
        "queue": "default",
    }
    return TaskInstanceDTO.model_validate(fields)


def at(second: float) -> datetime:
    return BEGAN + timedelta(seconds=second)


def write(ti: TaskInstanceDTO, job: int, *entries: tuple[float, str]) -> Path:
    """Writes log entries, each a time in seconds and a text, as a triggerer does."""
    path = f"{log_filename_template_renderer()(ti=ti)}.trigger.{job}.log"
    factory = TriggerLoggingFactory(log_path=path, ti=ti)  # type: ignore[arg-type]  # Airflow passes this type, too
    log = factory(logging_processors(json_output=True))
    for second, text in entries:
        time = at(second).isoformat().replace("+00:00", "Z")
        log.info(text, timestamp=time, ti_id=str(ti.id), logger="stepset_airflow.triggers.distributed_train")
    factory.close()
    return next(file for file in Path(factory._filehandle.name).parent.iterdir() if f".{job}." in file.name)


def test_lines_after_a_time_are_found_in_order(ti: TaskInstanceDTO) -> None:
    write(ti, 7, *((second, f"[rank 0] line {second}") for second in range(10)))
    assert written_after(ti, at(6).isoformat()) == ["[rank 0] line 7", "[rank 0] line 8", "[rank 0] line 9"]


def test_without_a_time_all_lines_are_found(ti: TaskInstanceDTO) -> None:
    write(ti, 7, (1, "first"), (1, "second"))
    assert written_after(ti, "") == ["first", "second"]


def test_lines_of_several_triggerers_are_ordered_by_time(ti: TaskInstanceDTO) -> None:
    write(ti, 9, (3, "c"), (4, "d"))
    write(ti, 10, (5, "e"))
    write(ti, 7, (1, "a"), (2, "b"))
    assert written_after(ti, at(1).isoformat()) == ["b", "c", "d", "e"]


def test_lines_of_other_tries_and_of_the_worker_are_ignored(ti: TaskInstanceDTO) -> None:
    path = write(ti, 7, (1, "mine"))
    text = path.read_text().replace("mine", "not mine")
    path.with_name(path.name.replace("attempt=2", "attempt=21")).write_text(text)
    path.with_name("attempt=2.log").write_text(text)
    assert written_after(ti, "") == ["mine"]


@pytest.mark.parametrize("left", [1, 40, 200])
def test_an_incomplete_last_line_is_ignored(ti: TaskInstanceDTO, left: int) -> None:
    path = write(ti, 7, (1, "whole"), (2, "x" * 300))
    whole, cut, _ = path.read_bytes().split(b"\n")
    path.write_bytes(whole + b"\n" + cut[:left])
    assert written_after(ti, "") == ["whole"]


def test_many_lines_and_long_lines_are_found(ti: TaskInstanceDTO) -> None:
    texts = [f"[rank {number % 3}] {number} " + "é" * (number * 311 % 200_000) for number in range(60)]
    write(ti, 7, *enumerate(texts))
    assert written_after(ti, "") == texts
    assert written_after(ti, at(19).isoformat()) == texts[20:]


def test_only_the_end_of_a_very_large_file_is_read(ti: TaskInstanceDTO) -> None:
    texts = [f"line {number} " + "x" * 2_000_000 for number in range(12)]
    write(ti, 7, *enumerate(texts))
    found = written_after(ti, "")
    assert found == texts[-len(found) :]
    assert 2 < len(found) < 10


def test_entries_of_other_loggers_are_ignored(ti: TaskInstanceDTO) -> None:
    path = write(ti, 7, (1, "airflow's"), (2, "ours"))
    first, second = path.read_text().splitlines()
    without = json.dumps({key: value for key, value in json.loads(first).items() if key != "logger"})
    path.write_text("\n".join([without, first.replace("stepset_airflow.", "stepset_airflow_plugin."), second, ""]))
    assert written_after(ti, "") == ["ours"]


def test_entries_of_a_deleted_task_instance_of_the_same_name_are_ignored(ti: TaskInstanceDTO) -> None:
    write(ti.model_copy(update={"id": uuid.uuid4()}), 7, (1, "of the one before"))
    write(ti, 8, (2, "of this one"))
    assert written_after(ti, "") == ["of this one"]


def test_without_a_log_file_no_lines_are_found(ti: TaskInstanceDTO) -> None:
    assert written_after(ti, "") == []


def test_a_file_name_template_with_fields_that_a_trigger_lacks_is_no_error(
    ti: TaskInstanceDTO, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ti, 7, (1, "there"))
    monkeypatch.setenv("AIRFLOW__LOGGING__LOG_FILENAME_TEMPLATE", "{{ ti.dag_run.conf.team }}/{{ ti.task_id }}.log")
    log_filename_template_renderer.cache_clear()
    try:
        assert written_after(ti, "") == []
    finally:
        log_filename_template_renderer.cache_clear()
