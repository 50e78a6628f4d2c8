"""Airflow's REST API as a user's script has it: trigger, look, clear, mark.

Used by the tests through the `airflow` fixture.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import until

ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")


def eventually(true: Callable[[], bool], every: float = 0.5) -> bool:
    """Whether something becomes true in the time that Airflow and a cluster may take for it.

    Args:
        true: asked again and again.
        every: seconds between two looks at most: each takes time of the servers that are waited for.
    """
    return until(true, 180, every)


class Rest:
    """The API of one Airflow.

    Args:
        address: of its API server, without a path.
        logs: the directory that its workers and triggerers write to.
    """

    def __init__(self, address: str, logs: Path) -> None:
        self.logs = logs
        self._client = httpx.Client(base_url=address, timeout=60)

    def close(self) -> None:
        """Ends its connections."""
        self._client.close()

    def ready(self) -> bool:
        """Whether the API server answers; the first answer brings the token that all that follows shows."""
        try:
            found = self._client.get("/auth/token")
        except httpx.TransportError:
            return False
        if found.is_success:
            self._client.headers["Authorization"] = f"Bearer {found.json()['access_token']}"
        return found.is_success

    def ask(self, method: str, path: str, body: Any = None, missing: Any = None, **query: Any) -> Any:
        """An answer below /api/v2, as JSON; `missing`, if that is not None, where there is no such thing."""
        answer = self._client.request(method, f"/api/v2{path}", json=body, params=query)
        if answer.status_code == httpx.codes.NOT_FOUND and missing is not None:
            return missing
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:2000]}"
        return answer.json() if answer.content else None

    def knows(self, dag_id: str) -> bool:
        """Whether a DAG file has been parsed; errors of its import are the test's."""
        found = self._client.get(f"/api/v2/dags/{dag_id}")
        if not found.is_success:
            errors = self.ask("GET", "/importErrors")["import_errors"]
            mine = [each["stack_trace"] for each in errors if Path(each["filename"]).stem == dag_id]
            assert not mine, mine[0]
        return found.is_success

    def trigger(self, dag_id: str) -> Run:
        """Makes a run of a DAG."""
        made = self.ask("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})
        return Run(self, dag_id, made["dag_run_id"])

    def runs(self, dag_id: str) -> list[Run]:
        """The runs of a DAG, the oldest first."""
        found = self.ask("GET", f"/dags/{dag_id}/dagRuns", order_by="id")["dag_runs"]
        return [Run(self, dag_id, each["dag_run_id"]) for each in found]


@dataclass(frozen=True)
class Run:
    """A DAG run."""

    rest: Rest
    dag_id: str
    run_id: str

    @property
    def path(self) -> str:
        return f"/dags/{self.dag_id}/dagRuns/{self.run_id}"

    def task(self, task_id: str = "train", index: int = -1) -> Task:
        """One of its task instances."""
        return Task(self, task_id, index)

    def wait(self) -> None:
        """Until it is over."""
        assert eventually(lambda: self.rest.ask("GET", self.path)["state"] in ENDED), f"{self.run_id} is not over"

    def clear(self, *task_ids: str) -> None:
        """Has tasks run again, as the button does."""
        body = {"dry_run": False, "dag_run_id": self.run_id, "task_ids": task_ids, "only_failed": False}
        self.rest.ask("POST", f"/dags/{self.dag_id}/clearTaskInstances", {**body, "reset_dag_runs": True})


@dataclass(frozen=True)
class Task:
    """A task instance."""

    run: Run
    task_id: str
    index: int

    @property
    def path(self) -> str:
        return f"{self.run.path}/taskInstances/{self.task_id}" + (f"/{self.index}" if self.index >= 0 else "")

    def look(self) -> dict[str, Any]:
        """What Airflow says of it."""
        found: dict[str, Any] = self.run.rest.ask("GET", self.path)
        return found

    @property
    def state(self) -> str | None:
        """Its state."""
        state: str | None = self.look()["state"]
        return state

    def wait(self, *states: str, tries: int = 1) -> dict[str, Any]:
        """Until it is in one of these states, by default in one that is an end, in at least such a try."""
        last: dict[str, Any] = {}

        def there() -> bool:
            last.update(self.look())
            return last["state"] in (states or ENDED) and last["try_number"] >= tries

        assert eventually(there), f"{last.get('state')}, try {last.get('try_number')}\n{self.explained()}"
        return last

    def mark(self, state: str) -> None:
        """Has a user's word on how it ended."""
        self.run.rest.ask("PATCH", self.path, {"new_state": state})

    def delete(self) -> None:
        """Has Airflow forget it."""
        self.run.rest.ask("DELETE", f"{self.run.path}/taskInstances/{self.task_id}", map_index=self.index)

    def log(self, number: int = 1) -> list[str]:
        """The lines of a try's log, as the API server merges them; exceptions as `ValueError: text`."""
        lines = []
        for entry in self._entries(number):
            lines.append(str(entry["event"]))
            lines += [f"{each['exc_type']}: {each['exc_value']}" for each in entry.get("error_detail") or ()]
        return lines

    def _entries(self, number: int) -> list[dict[str, Any]]:
        if self.look()["try_number"] < number:
            return []
        query = {"map_index": self.index, "full_content": True}
        path = f"{self.run.path}/taskInstances/{self.task_id}/logs/{number}"
        said = self.run.rest.ask("GET", path, missing={"content": []}, **query)  # there is none for a moment at first
        found: list[dict[str, Any]] = said["content"]
        return found

    def seconds_between(self, first: str, second: str) -> float:
        """Seconds from the first log entry with one text to the first with another."""
        entries = self._entries(1)
        began, ended = (
            next(each["timestamp"] for each in entries if text in each["event"]) for text in (first, second)
        )
        return (_time(ended) - _time(began)).total_seconds()

    def wait_for_line(self, text: str, number: int = 1) -> None:
        """Until its log has a line that is this text."""
        assert self._says(text, lambda line: line == text, number), f"no line {text!r}\n{self.explained()}"

    def wait_for(self, words: str, number: int = 1) -> None:
        """Until a line of its log has these words."""
        assert self._says(words, lambda line: words in line, number), f"no line with {words!r}\n{self.explained()}"

    def _says(self, words: str, meant: Callable[[str], bool], number: int) -> bool:
        # The API server parses all of a log each time: it is asked when there is something to be seen.
        return eventually(lambda: words in self.written(number) and any(map(meant, self.log(number))), every=1.0)

    def written(self, number: int | str = "*") -> str:
        """The files of a try's log, or of all, as they are: also when Airflow does not know the task any more."""
        place = f"dag_id={self.run.dag_id}/*/task_id={self.task_id}/**/attempt={number}.log*"
        return "".join(file.read_text(errors="replace") for file in sorted(self.run.rest.logs.glob(place)))

    def result(self, key: str = "return_value", absent: Any = None) -> Any:
        """One of its XComs.

        Args:
            key: its name.
            absent: what is answered where it is not there; by default that is an error.
        """
        missing = None if absent is None else {"value": absent}
        value = self.run.rest.ask("GET", f"{self.path_of_xcoms}/{key}", missing=missing, map_index=self.index)["value"]
        return json.loads(value) if isinstance(value, str) else value

    def xcoms(self) -> list[str]:
        """The names of its XComs."""
        found = self.run.rest.ask("GET", self.path_of_xcoms, map_index=self.index)["xcom_entries"]
        return sorted(each["key"] for each in found)

    @property
    def path_of_xcoms(self) -> str:
        return f"{self.run.path}/taskInstances/{self.task_id}/xcomEntries"

    def events(self) -> list[dict[str, Any]]:
        """The extras of the asset events it has made."""
        query = {"source_dag_id": self.run.dag_id, "source_run_id": self.run.run_id, "source_task_id": self.task_id}
        found = self.run.rest.ask("GET", "/assets/events", **query, source_map_index=self.index)
        return [each["extra"] for each in found["asset_events"]]

    def explained(self) -> str:
        """What a failed assertion should show."""
        number = int(self.look()["try_number"])
        return "\n".join(self.log(number)[-80:]) if number else "it was never tried"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
