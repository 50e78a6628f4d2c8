"""Stores the JSON document of a page as an XCom of the task.

The document is not in the task state store, because a triggerer has no access to this store in Airflow 3.3. Airflow
deletes the XComs of a task before each try. Therefore the document always describes the current try.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stepset_airflow.airflow_internals import is_supervisor_async, redact
from stepset_airflow.identity import TaskInstance, map_index_of
from stepset_airflow.page.document import KEY


@dataclass(frozen=True)
class TaskKey:
    """Identifies a try of a task instance. If the task is not mapped, `map_index` is -1."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1

    @classmethod
    def of(cls, ti: TaskInstance) -> TaskKey:
        return cls(ti.dag_id, ti.run_id, ti.task_id, map_index_of(ti), ti.try_number)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load(self) -> Mapping[str, Any] | None:
        """Returns the document that was stored in this try. Returns None if there is no readable document."""
        from airflow.sdk import BaseXCom

        return _document(BaseXCom.get_one(key=KEY, **self._where()))

    async def aload(self) -> Mapping[str, Any] | None:
        """Asynchronous version of `load`."""
        from airflow.sdk import BaseXCom

        return _document(await BaseXCom.aget_one(key=KEY, **self._where())) if is_supervisor_async() else self.load()

    def save(self, document: Mapping[str, Any]) -> None:
        """Stores the document. The secrets that Airflow masks in logs are also masked in the document."""
        self.set(KEY, redact(dict(document)))

    async def asave(self, document: Mapping[str, Any]) -> None:
        """Asynchronous version of `save`."""
        from airflow.sdk import BaseXCom

        if is_supervisor_async():
            await BaseXCom.aset(KEY, redact(dict(document)), **self._where())
        else:
            self.save(document)

    def set(self, key: str, value: Any) -> None:
        """Sets an XCom in Airflow's database. The value is stored there even if a custom XCom backend is configured."""
        from airflow.sdk import BaseXCom

        BaseXCom.set(key, value, **self._where())

    def _where(self) -> dict[str, Any]:
        return {"dag_id": self.dag_id, "run_id": self.run_id, "task_id": self.task_id, "map_index": self.map_index}


def _document(found: Any) -> Mapping[str, Any] | None:
    from stepset_airflow.page.stored_document import read_document

    return read_document(found)
