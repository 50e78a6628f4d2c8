"""Stores the data of a run's page while a worker follows the run.

Airflow may be slow or unreachable. Therefore a separate thread stores the data, and the thread of the task does not
wait. If the data cannot be stored, the separate thread logs a warning, and the task does not fail.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stepset_airflow.identity import TaskInstance
from stepset_airflow.links.training import links_of
from stepset_airflow.page.history import RunHistory
from stepset_airflow.page.page_xcom import TaskKey
from stepset_airflow.page.past_tries import store_try
from stepset_airflow.page.throttle import WriteThrottle
from stepset_airflow.task_state import TaskStateStore

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from stepset.run_status import LogLine, RunStatus

_log = logging.getLogger(__name__)

LAST_WRITE_TIMEOUT = 10.0
"""Maximum seconds that a task waits for a write in progress before the task ends."""


class PageWriter:
    """A listener of a run that stores the JSON document of the run's page.

    Args:
        history: the history of the run. The document is created from the history.
        save: a blocking function that stores a document.
    """

    def __init__(self, history: RunHistory, save: Callable[[Mapping[str, Any]], None]) -> None:
        self._history, self._save = history, save
        self._changed = threading.Condition()
        self._dirty = self._urgent = self._closed = self._failing = False
        self._written_at = float("-inf")
        self._thread: threading.Thread | None = None

    def on_line(self, line: LogLine) -> None:
        """Does nothing. The page displays only the last line of each rank, and the status contains these lines."""

    def on_status(self, status: RunStatus) -> None:
        with self._changed:
            if status == self._history.status:
                return
            self._urgent |= self._history.record(status, time.time())
            self._dirty = True
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._write_changes, name="stepset page", daemon=True)
                self._thread.start()
            self._changed.notify()

    @property
    def status(self) -> RunStatus | None:
        """The last status of the run, or None if this process has received no status."""
        return self._history.status

    def __enter__(self) -> PageWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, write: bool = True) -> None:
        """Stops the thread and writes pending changes.

        With `write=False` the method only stops the thread. Use `write=False` if the task may have been deleted.
        Airflow may need a long time to reject a write for a deleted task. A later call with `write=True` writes the
        changes.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(LAST_WRITE_TIMEOUT)
            if self._thread.is_alive():
                return
        if self._dirty and write:
            self._write()

    def store_try(self, store: TaskStateStore) -> None:
        """Stores a summary of this try for the page of the next try. `on_status` must have been called before."""
        self.close()
        store_try(store, self._history.document(time.time()))

    def _write_changes(self) -> None:
        while self._due():
            self._write()

    def _due(self) -> bool:
        """Waits until the next write is due, and returns True. If the writer is closed, returns False immediately."""
        with self._changed:
            while not self._closed:
                if not self._dirty:
                    self._changed.wait()
                    continue
                status = self._history.status
                age = time.time() - status.created if status is not None else 0.0
                left = self._written_at + WriteThrottle().wait(age, self._urgent) - time.monotonic()
                if left <= 0:
                    return True
                self._changed.wait(left)
            return False

    def _write(self) -> None:
        with self._changed:
            document = self._history.document(time.time())
            self._dirty = self._urgent = False
        self._written_at = time.monotonic()
        try:
            self._save(document)
            self._failing = False
        except Exception as error:  # noqa: BLE001  # a training does not depend on its page
            if not self._failing:
                _log.warning("the page of run %s cannot be written, and is retried: %s", document["run"], error)
            self._failing = True


def open_page(
    task: BaseOperator, ti: TaskInstance, extra_fields: Mapping[str, Any], *, resumed: bool = False
) -> PageWriter:
    """Returns the writer of a task instance's page, and stores the links of the task instance.

    The links are stored now, because Airflow itself stores links only when the task ends or is deferred.

    Args:
        extra_fields: additional fields of the document, which are not part of a run's status.
        resumed: whether a trigger has already stored a document of this run.
    """
    key = TaskKey.of(ti)
    stored = None
    try:
        stored = key.load() if resumed else None
        for name, url in links_of(task, ti).items():
            key.set(name, url)
    except Exception as error:  # noqa: BLE001  # a training does not depend on its page
        _log.warning("the page of %s cannot be read, or its links cannot be set: %s", key, error)
    return PageWriter(RunHistory({"try_number": key.try_number, **extra_fields}, stored), key.save)
