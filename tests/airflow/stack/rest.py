"""A client of Airflow's REST API: triggers runs, reads tasks and their logs, clears and marks tasks."""

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
    """Whether a condition becomes true within 180 s, which is enough for Airflow and a cluster.

    Args:
        true: the condition, evaluated repeatedly.
        every: maximum seconds between two evaluations; each evaluation costs the servers time.
    """
    return until(true, 180, every)


class Rest:
    """The API of one Airflow.

    Args:
        address: the URL of its API server, without a path.
        logs: the log directory of its workers and triggerers.
    """

    def __init__(self, address: str, logs: Path) -> None:
        self.logs = logs
        self._client = httpx.Client(base_url=address, timeout=60)

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def ready(self) -> bool:
        """Whether the API server answers; keeps the token of its answer for the following requests."""
        try:
            found = self._client.get("/auth/token")
        except httpx.TransportError:
            return False
        if found.is_success:
            self._client.headers["Authorization"] = f"Bearer {found.json()['access_token']}"
        return found.is_success

    def request(self, method: str, path: str, body: Any = None, missing: Any = None, **query: Any) -> Any:
        """The reply of a path below /api/v2, as JSON; `missing`, unless it is None, if the status is 404."""
        answer = self._client.request(method, f"/api/v2{path}", json=body, params=query)
        if answer.status_code == httpx.codes.NOT_FOUND and missing is not None:
            return missing
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:2000]}"
        return answer.json() if answer.content else None

    def has_parsed(self, dag_id: str) -> bool:
        """Whether a DAG file has been parsed; an import error fails the test."""
        found = self._client.get(f"/api/v2/dags/{dag_id}")
        if not found.is_success:
            errors = self.request("GET", "/importErrors")["import_errors"]
            mine = [each["stack_trace"] for each in errors if Path(each["filename"]).stem == dag_id]
            assert not mine, mine[0]
        return found.is_success

    def trigger(self, dag_id: str) -> Run:
        """Triggers a run of a DAG."""
        made = self.request("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})
        return Run(self, dag_id, made["dag_run_id"])

    def runs(self, dag_id: str) -> list[Run]:
        """The runs of a DAG, oldest first."""
        found = self.request("GET", f"/dags/{dag_id}/dagRuns", order_by="id")["dag_runs"]
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
        """Waits until it has ended."""
        assert eventually(lambda: self.rest.request("GET", self.path)["state"] in ENDED), f"{self.run_id} is not over"

    def clear(self, *task_ids: str) -> None:
        """Clears tasks, as the button does."""
        body = {"dry_run": False, "dag_run_id": self.run_id, "task_ids": task_ids, "only_failed": False}
        self.rest.request("POST", f"/dags/{self.dag_id}/clearTaskInstances", {**body, "reset_dag_runs": True})


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
        """Airflow's current record of it."""
        found: dict[str, Any] = self.run.rest.request("GET", self.path)
        return found

    @property
    def state(self) -> str | None:
        """Its state."""
        state: str | None = self.look()["state"]
        return state

    def wait(self, *states: str, tries: int = 1) -> dict[str, Any]:
        """Waits until it is in one of these states, by default a final one, in try `tries` or later."""
        last: dict[str, Any] = {}

        def there() -> bool:
            last.update(self.look())
            return last["state"] in (states or ENDED) and last["try_number"] >= tries

        assert eventually(there), f"{last.get('state')}, try {last.get('try_number')}\n{self.explained()}"
        return last

    def mark(self, state: str) -> None:
        """Sets its final state, as a user does."""
        self.run.rest.request("PATCH", self.path, {"new_state": state})

    def delete(self) -> None:
        """Deletes it from Airflow."""
        self.run.rest.request("DELETE", f"{self.run.path}/taskInstances/{self.task_id}", map_index=self.index)

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
        reply = self.run.rest.request("GET", path, missing={"content": []}, **query)  # a new try may have no log yet
        found: list[dict[str, Any]] = reply["content"]
        return found

    def seconds_between(self, first: str, second: str) -> float:
        """Seconds from the first log entry with one text to the first with another."""
        entries = self._entries(1)
        began, ended = (
            next(each["timestamp"] for each in entries if text in each["event"]) for text in (first, second)
        )
        return (_time(ended) - _time(began)).total_seconds()

    def wait_for_line(self, text: str, number: int = 1) -> None:
        """Waits until its log has exactly this line."""
        assert self._has_logged(text, lambda line: line == text, number), f"no line {text!r}\n{self.explained()}"

    def wait_for(self, words: str, number: int = 1) -> None:
        """Waits until a line of its log contains these words."""
        assert self._has_logged(words, lambda line: words in line, number), (
            f"no line with {words!r}\n{self.explained()}"
        )

    def _has_logged(self, words: str, meant: Callable[[str], bool], number: int) -> bool:
        # The API server parses the whole log for each request, so the files are searched first.
        return eventually(lambda: words in self.written(number) and any(map(meant, self.log(number))), every=1.0)

    def written(self, number: int | str = "*") -> str:
        """The log files of a try, or of all tries, as written; works after Airflow has deleted the task, too."""
        place = f"dag_id={self.run.dag_id}/*/task_id={self.task_id}/**/attempt={number}.log*"
        return "".join(file.read_text(errors="replace") for file in sorted(self.run.rest.logs.glob(place)))

    def result(self, key: str = "return_value", absent: Any = None) -> Any:
        """One of its XComs.

        Args:
            key: its name.
            absent: the result if it does not exist; by default that is an error.
        """
        missing = None if absent is None else {"value": absent}
        value = self.run.rest.request("GET", f"{self.path_of_xcoms}/{key}", missing=missing, map_index=self.index)[
            "value"
        ]
        return json.loads(value) if isinstance(value, str) else value

    def xcoms(self) -> list[str]:
        """The names of its XComs."""
        found = self.run.rest.request("GET", self.path_of_xcoms, map_index=self.index)["xcom_entries"]
        return sorted(each["key"] for each in found)

    @property
    def path_of_xcoms(self) -> str:
        return f"{self.run.path}/taskInstances/{self.task_id}/xcomEntries"

    def events(self) -> list[dict[str, Any]]:
        """The extras of the asset events that it has created."""
        query = {"source_dag_id": self.run.dag_id, "source_run_id": self.run.run_id, "source_task_id": self.task_id}
        found = self.run.rest.request("GET", "/assets/events", **query, source_map_index=self.index)
        return [each["extra"] for each in found["asset_events"]]

    def explained(self) -> str:
        """The last lines of its log, for a failed assertion."""
        number = int(self.look()["try_number"])
        return "\n".join(self.log(number)[-80:]) if number else "it was never tried"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
