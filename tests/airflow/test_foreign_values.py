"""Values that other programs stored for Airflow's tasks, and the corpus: every reader returns a value or its error."""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import cast

import pytest
from airflow.sdk.exceptions import AirflowException

from stepset.errors import BadInputError
from stepset_airflow.airflow_internals import LOG_LOGGER, LOG_TASK_INSTANCE, LOG_TEXT, LOG_TIME
from stepset_airflow.logs import predecessor_log
from stepset_airflow.openlineage.facets import datasets
from stepset_airflow.page.document import summary_of
from stepset_airflow.page.past_tries import KEY as TRIES
from stepset_airflow.page.past_tries import failure_of
from stepset_airflow.page.stored_document import read_document, read_summary
from stepset_airflow.run.trigger_event import reported_status
from stepset_airflow.run_record import RunRecord
from stepset_airflow.task_state import TaskStateStore
from stepset_airflow.triggerer.stored_lease import read_lease
from tests.airflow.page.test_stored_document import document
from tests.airflow.test_stored_lease import lease
from tests.airflow.test_stored_record import RECORD, STATUS
from tests.security.altered import check_altered
from tests.security.corpus import entries
from tests.security.parsers import SECONDS, Parser, dumped, text_of

pytestmark = pytest.mark.airflow

NO_JSON = (ValueError, RecursionError)
"""The errors of `json.loads`, with which Airflow reads a stored value before stepset."""


def entry(at: str, text: str) -> bytes:
    """A line of a trigger's log."""
    return dumped({LOG_TIME: at, LOG_TASK_INSTANCE: "ti", LOG_LOGGER: "stepset_airflow.x", LOG_TEXT: text})


FIRST, LAST = entry("2026-01-01T12:00:00Z", "first"), entry("2026-01-01T12:00:09Z", "last")


def page(data: bytes) -> None:
    value = json.loads(data)
    read_summary(value)
    if (read := read_document(value)) is not None:
        json.dumps(summary_of(read), allow_nan=False)


def end_of_a_try(data: bytes) -> None:
    value = json.loads(data)
    store = cast("TaskStateStore", SimpleNamespace(get=lambda key: value if key == TRIES else None))
    for run in (None, "run"):
        assert "\n" not in failure_of(store, run)


def log_of_a_triggerer(data: bytes) -> None:
    """Reads a log in which another program wrote between two lines of a trigger."""
    with TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        path = Path(made, "log")
        path.write_bytes(FIRST + b"\n" + data + b"\n" + LAST + b"\n")
        patch.setattr(predecessor_log, "trigger_log_files", lambda _: [path])
        for when in ("", "2025-01-01T00:00:00+00:00"):
            found = predecessor_log.written_after(SimpleNamespace(id="ti"), when)
            assert {"first", "last"} <= set(found)


def dataset(data: bytes) -> None:
    datasets([text_of(data)])


STATUS_EVENT = {"status": STATUS.to_dict()}


def mapping(data: bytes) -> dict[str, object]:
    """The event of a trigger, which Airflow passes on only as a mapping."""
    value = json.loads(data)
    return value if isinstance(value, dict) else {"status": value}


PARSERS = {
    "position in a task's log": Parser(lambda data: read_lease(json.loads(data), 7), dumped(lease()), NO_JSON),
    "document of the page": Parser(page, dumped(document()), NO_JSON),
    "record of a run": Parser(
        lambda data: RunRecord.from_dict(json.loads(data)), dumped(RECORD.to_dict()), (*NO_JSON, BadInputError)
    ),
    "event of a trigger": Parser(
        lambda data: reported_status({**STATUS_EVENT, **mapping(data)}),
        dumped({"status": STATUS.to_dict()}),
        (*NO_JSON, AirflowException),
    ),
    "end of an earlier try": Parser(end_of_a_try, dumped([{"run": "run", "failure": "it failed"}]), NO_JSON),
    "log of another triggerer": Parser(log_of_a_triggerer, entry("2026-01-01T12:00:05Z", "text")),
    "location of an asset": Parser(dataset, b"s3://user:secret@bucket:80/key"),
}


@pytest.mark.parametrize("name", PARSERS)
def test_any_value_is_read_or_a_declared_error(name: str) -> None:
    check_altered(PARSERS[name])


@pytest.mark.parametrize("name", PARSERS)
def test_the_corpus_is_read_with_declared_errors_only(name: str) -> None:
    for title, data in entries().items():
        began = time.process_time()
        try:
            PARSERS[name].check(data)
        except Exception as error:
            error.add_note(f"entry of the corpus: {title}")
            raise
        assert time.process_time() - began < SECONDS, title
