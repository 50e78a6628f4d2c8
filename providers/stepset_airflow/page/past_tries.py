"""Stores a summary of each try of a task. The page and the log of the next try show the summaries.

The summaries are in the task state store. Before each try, Airflow deletes the XComs of the task, including the
document of the page. Airflow does not delete the values in the task state store.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from stepset_airflow.airflow_internals import redact
from stepset_airflow.page.document import summary_of
from stepset_airflow.task_state import TaskStateStore, set_forever

KEY = "stepset_tries"
"""The key in the task state store."""
TRIES = 10
"""Maximum number of stored summaries."""

_log = logging.getLogger(__name__)


def store_try(store: TaskStateStore, document: Mapping[str, Any]) -> None:
    """Stores the summary of a try. `document` is the last document of the page in this try."""
    try:
        known = store.get(KEY)
        others = [each for each in known if each.get("run") != document["run"]] if isinstance(known, list) else []
        set_forever(store, KEY, [*others, redact(summary_of(document))][-TRIES:])
    except Exception as error:  # noqa: BLE001  # a task's end does not depend on its page
        _log.warning("the page will not show this try: %s", error)


def failure_of(store: TaskStateStore, run: str | None = None) -> str:
    """Returns one line with the reason why a run failed, or an empty string if the reason is unknown.

    `run` is the name of the run. If `run` is None, the run of the last stored try is used.
    """
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
