"""Stores in the task state store how a task's tries ended, for the page and for the log of the next try.

Before the next try Airflow deletes the task's XComs, and with them the page's document, but not the task's state.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from stepset_airflow.airflow_internals import redact
from stepset_airflow.page.document import summary_of
from stepset_airflow.task_state import TaskStateStore, set_forever

KEY = "stepset_tries"
"""Key in the task state store."""
TRIES = 10
"""Maximum stored tries."""

_log = logging.getLogger(__name__)


def store_try(store: TaskStateStore, document: Mapping[str, Any]) -> None:
    """Stores the end of a try from its page's last document."""
    try:
        known = store.get(KEY)
        others = [each for each in known if each.get("run") != document["run"]] if isinstance(known, list) else []
        set_forever(store, KEY, [*others, redact(summary_of(document))][-TRIES:])
    except Exception as error:  # noqa: BLE001  # a task's end does not depend on its page
        _log.warning("the page will not show this try: %s", error)


def failure_of(store: TaskStateStore, run: str | None = None) -> str:
    """Returns how a run failed, one line; empty if that is unknown. Default: the run of the last stored try."""
    try:
        known = store.get(KEY)
    except Exception as error:  # noqa: BLE001  # a try does not depend on how the last one is described
        _log.warning("how the last try ended is unknown: %s", error)
        return ""
    tries = [each for each in known if isinstance(each, Mapping)] if isinstance(known, list) else []
    if run is not None:
        tries = [each for each in tries if each.get("run") == run]
    text = tries[-1].get("failure") if tries else ""
    return " ".join(text.split()) if isinstance(text, str) else ""
