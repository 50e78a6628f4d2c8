"""Reads and writes the record of a task's run in Airflow's task state store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stepset_airflow.run_record import KEY, SUCCEEDED, RunRecord
from stepset_airflow.task_state import TaskStateStore, set_forever
from stepset_airflow.transferable import error_text


@dataclass(frozen=True)
class RecordStore:
    """The record of one task instance.

    Args:
        store: the task state store of the task instance.
    """

    store: TaskStateStore

    def read(self) -> RunRecord | None:
        """Returns the stored record of the task, or None if no record is stored.

        If the stored value is not a record, the method raises BadInputError. In this case it is unknown whether the
        task has a run.
        """
        from stepset.errors import BadInputError
        from stepset.printable import printable_text

        found = self.store.get(KEY)
        try:
            return None if found is None else RunRecord.from_dict(found)
        except ValueError as error:
            raise BadInputError(
                f"the task's state {KEY!r} is not the record of a run: {printable_text(str(error))}; cancel the task's"
                " run if 'stepset list' shows one, then delete the state and clear the task"
            ) from error

    def save(self, record: RunRecord) -> None:
        """Stores a record until the task instance is deleted."""
        set_forever(self.store, KEY, record.to_dict())

    def save_end(self, record: RunRecord, warn: Callable[[str], None]) -> bool:
        """Stores the record of a completed run. Returns whether Airflow has stored the record.

        If the run has succeeded, the method calls `warn` instead of raising an exception, so that the task succeeds,
        too. The caller must then keep the objects of the run, because another try of the task can then read the end of
        the run only from these objects.
        """
        try:
            self.save(record)
        except Exception as error:
            if record.ended != SUCCEEDED:
                raise
            warn(f"the end of run {record.name} cannot be stored: {error_text(error)}")
            return False
        return True
