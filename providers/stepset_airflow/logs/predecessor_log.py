"""Reads the lines that triggerers wrote to a task's log after a given time.

In the directory of the task's log, each triggerer writes to a separate file. The file remains if the triggerer is
killed. If the file is on another host or was never uploaded, Airflow cannot read the file. The lines of this file are
then missing from the task's log in the UI.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from stepset_airflow.airflow_internals import (
    LOG_LOGGER,
    LOG_TASK_INSTANCE,
    LOG_TEXT,
    LOG_TIME,
    trigger_log_files,
)

log = structlog.get_logger(logger_name=__name__)

_LOGGERS = "stepset_airflow."
"""The prefix of the names of this package's loggers."""
_BLOCK = 256 * 1024
_MAX_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes that are read from the end of a file.

A trigger stores its position often. Therefore the trigger normally writes fewer bytes after the last stored position.
"""


def written_after(ti: Any, when: str) -> list[str]:
    """Returns the messages that stepset's triggers wrote to a task's log after the time `when`.

    `when` is in ISO format with a time zone. If `when` is empty, the function returns all messages. If the files cannot
    be read, the function returns an empty list.
    """
    moment = datetime.fromisoformat(when) if when else None
    try:
        found = [entry for path in trigger_log_files(ti) for entry in _entries(path, str(ti.id), moment)]
    except Exception as error:  # noqa: BLE001  # e.g. the template of file names has a field that no trigger has
        log.debug(f"lines of other triggerers in this log cannot be read: {error}")
        return []
    return [text for _, text in sorted(found, key=lambda entry: entry[0])]


def _entries(path: Path, ti_id: str, moment: datetime | None) -> list[tuple[datetime, str]]:
    """Returns the entries that the triggers of a task instance wrote to a file after `moment`.

    Each returned entry consists of its time and its message.

    If a user deleted the DAG run and created the DAG run again, the file also contains entries of the deleted task
    instance. These entries are not returned.
    """
    found: list[tuple[datetime, str]] = []
    for line in _backwards(path):
        try:
            entry = json.loads(line)
            time = datetime.fromisoformat(entry[LOG_TIME])
            if time.tzinfo is None:
                continue  # a time without a time zone cannot be compared with `moment`
            if moment is not None and time <= moment:
                break
            if entry[LOG_TASK_INSTANCE] == ti_id and entry[LOG_LOGGER].startswith(_LOGGERS):
                found.append((time, str(entry[LOG_TEXT])))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # the line was truncated when the triggerer was killed, or another program wrote it
    return found[::-1]


def _backwards(path: Path) -> Iterator[bytes]:
    """Yields the lines of a file in reverse order. Stops after `_MAX_BYTES`."""
    with path.open("rb") as file:
        offset = end = file.seek(0, os.SEEK_END)
        partial = b""
        while offset and end - offset < _MAX_BYTES:
            size = min(_BLOCK, offset)
            offset -= size
            file.seek(offset)
            partial, *whole = (file.read(size) + partial).split(b"\n")
            yield from reversed(whole)
        if not offset:
            yield partial
