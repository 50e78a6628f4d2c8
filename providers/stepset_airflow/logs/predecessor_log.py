"""Reads what triggerers have written to a task's log after a note.

A triggerer writes a trigger's lines to a file of its own beside the task's log; the lines of a killed triggerer stay
there. If Airflow does not show the file of a triggerer that no longer exists (served from another host, or never
uploaded), it does not show the lines before the note either.
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

_OURS = "stepset_airflow."
"""How the names of this package's loggers begin."""
_BLOCK = 256 * 1024
_MOST = 16 * 1024 * 1024
"""Bytes that are read from a file's end: more than is written between two notes. If no note could be written for a long
time, this limits the memory used."""


def written_after(ti: Any, when: str) -> list[str]:
    """Returns the texts that stepset's triggers wrote to a task's log after a moment; none if no file can be read here.

    The moment is text in ISO format with a time zone, by the triggerers' clocks; empty: all texts.
    """
    moment = datetime.fromisoformat(when) if when else None
    try:
        found = [entry for path in trigger_log_files(ti) for entry in _entries(path, str(ti.id), moment)]
    except Exception as error:  # noqa: BLE001  # a deployment's template asks for what a trigger does not have, say
        log.debug(f"what other triggerers have written to this log cannot be read: {error}")
        return []
    return [text for _, text in sorted(found, key=lambda entry: entry[0])]


def _entries(path: Path, ti_id: str, moment: datetime | None) -> list[tuple[datetime, str]]:
    """Time and text of a file's entries of one try after a moment.

    A file may have entries of other runs with the same names: of one that was deleted and created again, for example.
    """
    found: list[tuple[datetime, str]] = []
    for line in _backwards(path):
        try:
            entry = json.loads(line)
            time = datetime.fromisoformat(entry[LOG_TIME])
            if moment is not None and time <= moment:
                break
            if entry[LOG_TASK_INSTANCE] == ti_id and entry[LOG_LOGGER].startswith(_OURS):
                found.append((time, str(entry[LOG_TEXT])))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # cut off by the kill, or another program's
    return found[::-1]


def _backwards(path: Path) -> Iterator[bytes]:
    """Yields a file's lines, the last one first."""
    with path.open("rb") as file:
        place = end = file.seek(0, os.SEEK_END)
        begun = b""
        while place and end - place < _MOST:
            size = min(_BLOCK, place)
            place -= size
            file.seek(place)
            begun, *whole = (file.read(size) + begun).split(b"\n")
            yield from reversed(whole)
        if not place:
            yield begun
