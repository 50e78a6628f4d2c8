"""Reads the lines that triggerers wrote to a task's log after a time.

Each triggerer writes a trigger's lines to its own file beside the task's log; the file of a killed triggerer remains.
If Airflow cannot show that file (it is on another host, or was never uploaded), its lines are missing from the task's
log in the UI.
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
"""Prefix of the names of this package's loggers."""
_BLOCK = 256 * 1024
_MAX_BYTES = 16 * 1024 * 1024
"""Maximum bytes to read from a file's end: more than triggers write between two stored positions, unless storing failed
for a long time."""


def written_after(ti: Any, when: str) -> list[str]:
    """Returns the texts that stepset's triggers wrote to a task's log after `when`; empty if no file can be read.

    `when` is a time of the triggerers' clocks, in ISO format with a time zone; empty: all texts.
    """
    moment = datetime.fromisoformat(when) if when else None
    try:
        found = [entry for path in trigger_log_files(ti) for entry in _entries(path, str(ti.id), moment)]
    except Exception as error:  # noqa: BLE001  # such as a filename template with a field that a trigger lacks
        log.debug(f"lines of other triggerers in this log cannot be read: {error}")
        return []
    return [text for _, text in sorted(found, key=lambda entry: entry[0])]


def _entries(path: Path, ti_id: str, moment: datetime | None) -> list[tuple[datetime, str]]:
    """Returns the time and text of the entries that a task instance's triggers wrote to a file after `moment`.

    A file may contain entries of other task instances with the same names, for example if a DAG run was deleted and
    created again.
    """
    found: list[tuple[datetime, str]] = []
    for line in _backwards(path):
        try:
            entry = json.loads(line)
            time = datetime.fromisoformat(entry[LOG_TIME])
            if moment is not None and time <= moment:
                break
            if entry[LOG_TASK_INSTANCE] == ti_id and entry[LOG_LOGGER].startswith(_LOGGERS):
                found.append((time, str(entry[LOG_TEXT])))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # truncated by the kill, or written by another program
    return found[::-1]


def _backwards(path: Path) -> Iterator[bytes]:
    """Yields a file's lines, the last one first."""
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
